"""What surrounds the endpoints: keys, request ids, body limits, phases, probes, disconnects."""

import asyncio
import base64
from datetime import datetime
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from pagemill.engine.async_engine import AsyncEngine
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.engine.testing.fake_outputs import FakeStats
from pagemill.inputs.task import Task
from pagemill.server.endpoints.endpoint import Transport
from pagemill.server.endpoints.table import ENDPOINTS, error_shape
from pagemill.server.errors import STATUS_OF_CODE, TYPE_OF_STATUS, not_implemented
from pagemill.server.testing.fake_server import fake_server

JSON = {"content-type": "application/json"}


def check_error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    return error


def test_a_key_protects_every_route_but_the_probes() -> None:
    async def body() -> None:
        async with fake_server(api_keys=["k1", "k2"]) as server:
            paths = [(e.method, e.path.replace("{model:path}", "fake")) for e in ENDPOINTS]
            paths += [("GET", "/openapi.json"), ("GET", "/nope"), ("GET", "/health/")]
            for method, path in paths:
                for header in (None, "k1", "Bearer", "Bearer ", "Bearer k3", "Basic k1"):
                    headers = {} if header is None else {"authorization": header}
                    got = await server.client.request(method, path, headers=headers)
                    if path in ("/health", "/ping", "/ready"):
                        assert got.status_code == 200
                    else:
                        assert got.status_code == 401
                        msgspec.json.decode(got.content, type=error_shape(path).kind)
                        assert got.headers["www-authenticate"] == "Bearer"
            for name, value, status in (
                *(("authorization", "Bearer k1", 200), ("authorization", "bearer k2", 200)),
                *(("x-api-key", "k1", 200), ("X-API-Key", "k2", 200)),
                *(
                    ("x-api-key", "k3", 401),
                    ("x-api-key", "", 401),
                    ("x-api-key", "Bearer k1", 401),
                ),
            ):
                got = await server.client.get("/v1/models", headers={name: value})
                assert got.status_code == status, (name, value)
                assert "x-request-id" in got.headers

    asyncio.run(body())


def test_request_ids() -> None:
    async def body() -> None:
        async with fake_server() as server:
            payload = {"prompt": "a", "max_tokens": 1}
            got = await server.client.post(
                "/v1/completions", json=payload, headers={"X-Request-Id": "mine"}
            )
            assert got.headers["x-request-id"] == "mine"
            assert got.json()["id"] == "cmpl-mine"
            for bad in ("", "x" * 200, "a b"):
                got = await server.client.post(
                    "/v1/completions", json=payload, headers={"X-Request-Id": bad}
                )
                assert len(got.headers["x-request-id"]) == 32
            got = await server.client.post("/v1/completions", json={**payload, "request_id": "r"})
            assert got.json()["id"] == "cmpl-r"

    asyncio.run(body())


def test_a_request_id_in_the_body() -> None:
    async def body() -> None:
        async with fake_server() as server:
            sent = {"x-request-id": "of-the-header"}
            messages = [{"role": "user", "content": "a"}]
            for path, prefix, payload in (
                ("/v1/completions", "cmpl", {"prompt": "a"}),
                ("/v1/chat/completions", "chatcmpl", {"messages": messages}),
            ):
                payload |= {"max_tokens": 1, "request_id": "r-1"}
                got = await server.client.post(path, json=payload, headers=sent)
                assert got.headers["x-request-id"] == "r-1"
                assert got.json()["id"] == f"{prefix}-r-1"
                got = await server.client.post(path, json={**payload, "stream": True}, headers=sent)
                assert got.headers["x-request-id"] == "r-1"
                assert f'"id":"{prefix}-r-1"' in got.text
                for bad in ("a b", "é", "a\r\nb: c"):
                    got = await server.client.post(path, json={**payload, "request_id": bad})
                    assert check_error(got, 400)["param"] == "request_id"
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            payload = {"input": "a", "request_id": "r-2"}
            got = await server.client.post("/v1/embeddings", json=payload)
            assert got.headers["x-request-id"] == "r-2"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("content", "part"),
    [
        *((b"", "JSON"), (b"{", "JSON"), (b"[]", "object"), (b"5", "object")),
        *((b"[" * 99_000, "deep"), (b'{"prompt": "a", "top_k": 1e999}', "range")),
        # Not UTF-8: in a string, in a name, encoded surrogates, overlong, another encoding.
        *((b"\xff", "JSON"), (b'{"prompt": "\xff\xfe"}', "UTF-8"), (b'{"\xff": 1}', "UTF-8")),
        *((b'{"prompt": "\xed\xa0\x80"}', "UTF-8"), (b'{"prompt": "\xc0\x80"}', "UTF-8")),
        ('{"prompt": "a"}'.encode("utf-16"), "JSON"),
        # Half of a surrogate pair has no UTF-8 form.
        *((b'{"prompt": "\\ud800"}', "pairs"), (b'{"prompt": "\\udc00"}', "pairs")),
        (b'{"\\uDBFF": 1}', "pairs"),
    ],
)
def test_bodies_that_are_no_request(content: bytes, part: str) -> None:
    async def body() -> None:
        async with fake_server() as server:
            for path in ("/v1/completions", "/v1/chat/completions", "/invocations"):
                got = await server.client.post(path, content=content, headers=JSON)
                assert part in check_error(got, 400)["message"]
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            got = await server.client.post("/v1/embeddings", content=content, headers=JSON)
            assert part in check_error(got, 400)["message"]

    asyncio.run(body())


def test_body_limit_and_content_type() -> None:
    async def body() -> None:
        async with fake_server() as server:
            large = b'{"prompt": "' + b"x" * 100_000 + b'"}'
            got = await server.client.post("/v1/completions", content=large, headers=JSON)
            check_error(got, 413)

            async def chunks():
                for at in range(0, len(large), 1000):
                    yield large[at : at + 1000]

            got = await server.client.post("/v1/completions", content=chunks(), headers=JSON)
            check_error(got, 413)
            got = await server.client.post(
                "/v1/completions", content=b"{}", headers={"content-type": "text/plain"}
            )
            assert "application/json" in check_error(got, 400)["message"]

    asyncio.run(body())


def test_statuses() -> None:
    # Clients retry a 501 as an outage; what is not supported stays so.
    assert STATUS_OF_CODE["UNIMPLEMENTED"] == STATUS_OF_CODE["INVALID_ARGUMENT"] == 400
    assert not_implemented("x", "y").status == 400
    assert 501 not in TYPE_OF_STATUS
    assert set(STATUS_OF_CODE.values()) - {499} <= set(TYPE_OF_STATUS)


def test_routes_and_methods() -> None:
    async def body() -> None:
        async with fake_server() as server:
            check_error(await server.client.get("/nope"), 404)
            got = await server.client.get("/v1/completions")
            check_error(got, 405)
            assert got.headers["allow"] == "OPTIONS, POST"
            check_error(await server.client.get("/v1/models/x"), 404)
            got = (await server.client.get("/v1/models")).json()
            assert [m["id"] for m in got["data"]] == ["fake", "alias"]
            assert got["data"][0]["max_model_len"] == 256
            assert (got["first_id"], got["last_id"], got["has_more"]) == ("fake", "alias", False)
            card = (await server.client.get("/v1/models/alias")).json()
            assert (card["id"], card["display_name"], card["object"]) == ("alias", "alias", "model")
            assert datetime.fromisoformat(card["created_at"]).timestamp() == card["created"]
            assert set((await server.client.get("/version")).json()) == {"version"}
            server.state.lifecycle.enter()
            assert (await server.client.get("/load")).json() == {"server_load": 1}
            server.state.lifecycle.leave()
            text = (await server.client.get("/metrics")).text
            assert 'pagemill:num_requests_running{engine="0",model_name="fake"} 0.0' in text

    asyncio.run(body())


def test_an_unknown_route_names_the_one_that_was_meant() -> None:
    async def body() -> None:
        async with fake_server() as server:
            for path, meant in (
                ("/chat/completions", "use /v1/chat/completions."),
                ("/v1/v1/chat/completions", "use /v1/chat/completions."),
                ("/v1/tokenize", "use /tokenize."),
                ("/completion", "use /v1/completions."),
                ("/api/chat", "use /v1/chat/completions."),
                ("/embed", "use /v1/embeddings."),
                ("/v1/embed", "use /v2/embed."),
                ("/nope", "/openapi.json lists those there are."),
                ("/v1/", "/openapi.json lists those there are."),
                ("/" + "v1/" * 1000, "/openapi.json lists those there are."),
            ):
                error = check_error(await server.client.post(path, json={}), 404)
                assert error["message"] == f"There is no route {path[:200]}; {meant}"
            for path in ("/sleep", "/v1/load_lora_adapter"):
                error = check_error(await server.client.post(path, json={}), 404)
                assert error["message"] == (
                    f"{path} is not among clients' routes, but at --admin-address."
                )

    asyncio.run(body())


def test_routes_of_other_tasks_say_how_they_are_served() -> None:
    async def body() -> None:
        async with fake_server() as server:
            embeds = check_error(await server.client.post("/v1/embeddings", json={}), 404)
            assert embeds["message"].startswith(
                "The model `fake` generates text, so /v1/embeddings is not served here: use "
                "/v1/chat/completions, /v1/completions, "
            )
            assert embeds["message"].endswith(" With --task embed it would serve /v1/embeddings.")
            assert "/v1/chat/completions/" not in embeds["message"]
            hears = check_error(await server.client.post("/v1/audio/transcriptions"), 404)
            assert "--task" not in hears["message"]

    asyncio.run(body())


def test_head_and_options() -> None:
    async def body() -> None:
        async with fake_server() as server:
            for endpoint in ENDPOINTS:
                path = endpoint.path.replace("{model:path}", "fake")
                if not server.state.has_task(endpoint.tasks):
                    absent_route = await server.client.options(path)
                    assert absent_route.status_code == 404
                    assert "is not served here" in absent_route.text
                    continue
                got = await server.client.options(path)
                assert got.status_code == 204 and not got.content
                allowed = got.headers["allow"].split(", ")
                assert endpoint.method in allowed and "OPTIONS" in allowed
                assert ("HEAD" in allowed) == ("GET" in allowed)
                if endpoint.transport is Transport.WEBSOCKET:
                    assert (await server.client.head(path)).status_code == 426
                elif endpoint.method == "GET":
                    # Nothing is stored, and there is no folder for batches.
                    stored = ("{response_id}", "{conversation_id}", "/v1/files", "/batches")
                    absent = any(p in path for p in stored)
                    assert (await server.client.head(path)).status_code == (404 if absent else 200)
            assert (await server.client.options("/ping")).headers["allow"] == (
                "GET, HEAD, OPTIONS, POST"
            )
            assert (await server.client.post("/ping")).status_code == 200
            check_error(await server.client.options("/nope"), 404)
            check_error(await server.client.delete("/v1/models"), 405)
        async with fake_server(api_keys=["k"]) as server:
            check_error(await server.client.options("/v1/models"), 401)
            assert (await server.client.head("/v1/models")).status_code == 401

    asyncio.run(body())


def test_loading() -> None:
    async def body() -> None:
        async with fake_server(loaded=False) as server:
            assert (await server.client.get("/health")).status_code == 200
            assert "loading" in check_error(await server.client.get("/ready"), 503)["message"]
            got = await server.client.post("/v1/completions", json={"prompt": "a"})
            check_error(got, 503)
            assert int(got.headers["retry-after"]) > 0

    asyncio.run(body())


def test_models_that_pool_refuse_while_they_drain() -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            server.state.lifecycle.begin_drain()
            rows = [row for row in ENDPOINTS if row.queued and Task.EMBED in row.tasks]
            assert {"/score", "/v2/embed", "/pooling"} <= {row.path for row in rows}
            for row in rows:
                got = await server.client.post(row.path, json={})
                assert got.status_code == 503, row.path

    asyncio.run(body())


def test_draining() -> None:
    async def body() -> None:
        async with fake_server() as server:
            server.engine.most_tokens = 100
            running = asyncio.create_task(
                server.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 200})
            )
            async with asyncio.timeout(60):
                while not server.async_engine.num_live:
                    await asyncio.sleep(0.001)
            lifecycle = server.state.lifecycle
            lifecycle.begin_drain()
            assert "draining" in check_error(await server.client.get("/ready"), 503)["message"]
            assert (await server.client.get("/health")).status_code == 200
            got = await server.client.post("/v1/completions", json={"prompt": "a"})
            check_error(got, 503)
            for row in ENDPOINTS:
                if Task.GENERATE in row.tasks and row.method == "POST":
                    got = await server.client.post(row.path, json={})
                    assert got.status_code == 503, row.path
            assert not await lifecycle.wait_idle(0.001)
            server.engine.most_tokens = None
            assert await lifecycle.wait_idle(60)
            done = await running
            assert done.json()["usage"]["completion_tokens"] == 200
            lifecycle.became_ready()
            check_error(await server.client.get("/ready"), 503)

    asyncio.run(body())


def test_a_stuck_engine_is_neither_ready_nor_healthy() -> None:
    async def body() -> None:
        async with fake_server() as server:
            server.engine.stats().progress_age_s = 6.0
            check_error(await server.client.get("/ready"), 503)
            assert "6 s" in check_error(await server.client.get("/health"), 503)["message"]
            server.engine.stats().progress_age_s = 4.0
            assert (await server.client.get("/health")).status_code == 200

    asyncio.run(body())


def test_a_sleeping_engine_is_healthy_and_not_ready() -> None:
    async def body() -> None:
        async with fake_server() as server:
            server.engine.stats().asleep = True
            error = check_error(await server.client.get("/ready"), 503)
            assert error["message"] == "The engine is asleep: the operator's /wake_up wakes it."
            assert (await server.client.get("/health")).status_code == 200
            server.engine.stats().asleep = False
            assert (await server.client.get("/ready")).status_code == 200

    asyncio.run(body())


def test_probes_say_which_of_several_engines_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with fake_server() as server:
            idle, stuck = FakeStats(), FakeStats(progress_age_s=6.0)
            monkeypatch.setattr(AsyncEngine, "engines", lambda _: (idle, stuck, None, None))
            states = ("ready", "ready", "restarting", "failed: resume")
            monkeypatch.setattr(AsyncEngine, "states", lambda _: states)
            for route in ("/health", "/ready"):
                told = (await server.client.get(route)).json()["engines"]
                assert told == ["ready", "stuck", "restarting", "failed: resume"]

    asyncio.run(body())


def test_embeddings() -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            payload = {"model": "fake", "input": ["ab", "c"]}
            got = (await server.client.post("/v1/embeddings", json=payload)).json()
            assert got["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
            vectors = [np.array(d["embedding"], np.float32) for d in got["data"]]
            payload["encoding_format"] = "base64"
            coded = (await server.client.post("/v1/embeddings", json=payload)).json()
            for vector, item in zip(vectors, coded["data"], strict=True):
                raw = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
                assert np.array_equal(raw, vector)
            assert not np.array_equal(vectors[0], vectors[1])
            many = {"input": [[i % 256] for i in range(1500)]}
            got = (await server.client.post("/v1/embeddings", json=many)).json()
            assert [d["index"] for d in got["data"]] == list(range(1500))
            for bad in ({"input": []}, {"input": "x" * 300}, {"input": 5}, {}, {"input": [-1]}):
                error = check_error(await server.client.post("/v1/embeddings", json=bad), 400)
                assert error["param"] == "input"
            bad = {"input": "a", "dimensions": 3}
            error = check_error(await server.client.post("/v1/embeddings", json=bad), 400)
            assert error["param"] == "dimensions"
            got = await server.client.post("/v1/completions", json={"prompt": "a"})
            assert "/v1/embeddings" in check_error(got, 404)["message"]
        async with fake_server() as server:
            got = await server.client.post("/v1/embeddings", json={"input": "a"})
            assert "generates" in check_error(got, 404)["message"]

    asyncio.run(body())
