"""Requests through the router: passed on, tried again, broken off, refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.config import ConfigError
from pagemill.config.route import ListenConfig
from pagemill.engine.reserved_port import reserved_port
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.router.relay import relay
from pagemill.router.testing.fake_fleet import (
    FakeFleet,
    fake_fleet,
    listening,
    running_router,
    until,
)
from pagemill.router.upstream import Reply, UpstreamError
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey, plain_keys

BODY: dict[str, Any] = {"model": "fake", "prompt": "abc", "max_tokens": 3}


def served(fleet: FakeFleet) -> list[int]:
    return [server.counts.served for server in fleet.router.servers]


def metric(text: str, name: str, **labels: str) -> float:
    (value,) = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(f"pagemill:router_{name}{{")
        and all(f'{key}="{value}"' in line for key, value in labels.items())
    ]
    return value


def test_requests_and_refusals_pass() -> None:
    async def test() -> None:
        async with fake_fleet() as fleet:
            for _ in range(2):
                got = await fleet.client.post("/v1/completions", json=BODY)
                assert got.status_code == 200 and got.json()["usage"]["completion_tokens"] == 3
            assert served(fleet) == [1, 1]  # in turn
            got = await fleet.client.post("/v1/completions", json=BODY | {"max_tokens": -1})
            assert got.status_code == 400 and got.json()["error"]["param"] == "max_tokens"
            named = BODY | {"request_id": "mine"}
            got = await fleet.client.post("/v1/completions", json=named)
            assert got.headers.get_list("x-request-id") == ["mine"]
            assert len(got.headers.get_list("date")) == 1
            head = {"x-request-id": "header"}
            got = await fleet.client.post("/v1/completions", json=BODY, headers=head)
            assert got.headers["x-request-id"] == "header" and "header" in got.json()["id"]

    asyncio.run(test())


def test_bytes_and_their_header_pass() -> None:
    async def test() -> None:
        async with fake_fleet(options=FakeOptions(pooled_size=4)) as fleet:
            fields = {"input": ["a"] * 64, "encoding_format": "bytes"}
            got = await fleet.client.post("/v1/embeddings", json=fields)
            assert got.headers["content-type"] == "application/octet-stream"
            described = json.loads(got.headers["metadata"])["data"]
            assert len(described) == 64 and described[-1]["end"] == len(got.content)

    asyncio.run(test())


def test_what_is_generated_elsewhere_is_derendered() -> None:
    async def test() -> None:
        async with fake_fleet() as fleet:
            generated = {"choices": [{"token_ids": [97], "finish_reason": "length"}]}
            fields = {"completion_request": {"prompt": "b"}, "generate_response": generated}
            got = await fleet.client.post("/v1/completions/derender", json=fields)
            assert got.json()["choices"][0]["text"] == "a"

    asyncio.run(test())


def test_forms_of_audio_pass() -> None:
    path, files = "/v1/audio/transcriptions", {"file": bytes(300)}
    fields = {"language": "en", "max_completion_tokens": "3"}

    async def test() -> None:
        for policy in ("round_robin", "prefix_aware", "session"):
            async with fake_fleet(policy=policy, transcribes=True) as fleet:
                got = await fleet.client.post(path, files=files, data=fields)
                assert got.status_code == 200 and len(got.json()["text"]) == 3
                refused = await fleet.client.post(path, json={})
                assert refused.status_code == 400 and "-F file=@NAME" in refused.text
                assert sum(served(fleet)) == 1
        async with fake_fleet(max_body_bytes=1024, transcribes=True) as fleet:
            refused = await fleet.client.post(path, files={"file": bytes(2000)}, data=fields)
            assert refused.status_code == 413

    asyncio.run(test())


def test_paths_of_plugins_pass_if_they_are_named() -> None:
    seen: list[bytes] = []

    async def plugin(scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        status = 200 if scope["path"] in ("/ready", "/plugins/alpaca/shout") else 404
        if scope["path"] != "/ready":
            seen.append(body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b'"LOUD"'})

    async def test() -> None:
        async with listening(plugin) as url:
            named = ("/plugins/alpaca/shout",)
            async with running_router([url], pass_path=named) as (client, fleet, _):
                await until(lambda: len(fleet.available) == 1)
                got = await client.post("/plugins/alpaca/shout", json={"text": "loud"})
                assert (got.status_code, got.json(), seen) == (200, "LOUD", [b'{"text":"loud"}'])
                assert (await client.post("/plugins/alpaca/other", json={})).status_code == 404
                assert (await client.get("/plugins/alpaca/shout")).status_code == 405
                assert len(seen) == 1

    asyncio.run(test())


@pytest.mark.parametrize(
    "paths",
    [("/v1/files",), ("/plugins/a",), ("/plugins/a/{b}",), ("/plugins/a/b", "/plugins/a/b")],
)
def test_paths_that_cannot_be_passed(paths: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="--pass-path"):
        ListenConfig(pass_path=paths)


def test_a_stream_is_the_servers() -> None:
    async def test() -> None:
        async with fake_fleet(1) as fleet:
            body = BODY | {"stream": True, "seed": 5, "request_id": "s", "max_tokens": 20}
            through = await fleet.client.post("/v1/completions", json=body)
            direct = await fleet.servers[0].client.post("/v1/completions", json=body)

            def texts(got: httpx.Response) -> list[str]:
                lines = got.text.split("\n\n")
                assert lines[-2:] == ["data: [DONE]", ""]
                return [json.loads(each[6:])["choices"][0]["text"] for each in lines[:-2]]

            assert "".join(texts(through)) == "".join(texts(direct)) != ""
            assert through.headers["content-type"] == direct.headers["content-type"]

    asyncio.run(test())


def test_a_client_that_leaves_aborts_its_request() -> None:
    async def test() -> None:
        options = FakeOptions(step_s=0.002)
        async with fake_fleet(1, options) as fleet:
            body = BODY | {"stream": True, "max_tokens": 4000}
            async with fleet.client.stream("POST", "/v1/completions", json=body) as got:
                await anext(got.aiter_bytes())
                assert fleet.router.router.num_requests(0) == 1
            await until(lambda: fleet.servers[0].engine.stats().num_running == 0)
            await until(lambda: fleet.router.servers[0].counts.aborted == 1)
            assert fleet.router.router.num_requests(0) == 0
            assert fleet.servers[0].engine.stats().generation_tokens < 4000
            assert len(fleet.router.available) == 1  # it is not the server that failed

    asyncio.run(test())


def test_a_server_without_room_for_new_bytes_waits() -> None:
    async def test() -> None:
        async with scripted(flood) as (client, fleet, _):
            async with client.stream("POST", "/v1/completions", json=BODY) as got:
                parts = got.aiter_raw()
                await anext(parts)
                before = -1
                while before != flooded[0]:  # until nothing moves any more
                    before = flooded[0]
                    await asyncio.sleep(0.1)
                assert 0 < flooded[0] < FLOOD_PARTS
                assert sum([len(part) async for part in parts]) > 0
            assert flooded[0] == FLOOD_PARTS
            assert fleet.servers[0].counts.served == 1

    flooded[0] = 0
    asyncio.run(test())


def test_an_unreachable_server_costs_nothing_but_a_retry() -> None:
    async def test() -> None:
        async with fake_fleet(2, probe_interval=60) as fleet:
            await fleet.router.servers[0].upstream.close()
            broken = fleet.router.servers[0].upstream
            with reserved_port() as port:  # where no server listens
                broken._origin = ("http", "127.0.0.1", port)  # pyright: ignore[reportPrivateUsage]
                got = await asyncio.gather(
                    *(fleet.client.post("/v1/completions", json=BODY) for _ in range(8))
                )
            assert [each.status_code for each in got] == [200] * 8
            assert served(fleet) == [0, 8]
            assert fleet.router.available == [fleet.router.servers[1]]
            text = (await fleet.client.get("/metrics")).text
            assert metric(text, "retries_total") == fleet.router.servers[0].counts.failed >= 1
            assert metric(text, "server_available", server=broken.url) == 0

    asyncio.run(test())


def test_a_503_is_of_one_request() -> None:
    """A client that can cause one must not keep others from the server."""
    num_refused = [0, 0]

    def busy(at: int) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            num_refused[at] += scope["path"] != "/ready"
            status = 200 if scope["path"] == "/ready" else 503
            head = {"type": "http.response.start", "status": status, "headers": []}
            await send(head)
            await send({"type": "http.response.body", "body": b"{}"})

        return app

    async def test() -> None:
        async with (
            listening(busy(0)) as one,
            listening(busy(1)) as two,
            running_router([one, two], policy="session", probe_interval=60) as (client, fleet, _),
        ):
            await until(lambda: len(fleet.available) == 2)
            for _ in range(5):
                fields = BODY | {"session_id": "a"}
                got = await client.post("/v1/completions", json=fields)
                assert got.status_code == 503
            assert num_refused == [5, 5], "each is tried on the other one, too"
            assert len(fleet.available) == 2
            assert sum(server.counts.failed for server in fleet.servers) == 5

    asyncio.run(test())


class BreaksOff(Reply):
    """Two parts, and then nothing more."""

    def __init__(self) -> None:
        self.status, self.headers = 200, []

    async def parts(self) -> AsyncGenerator[bytes, None]:
        yield b"a"
        yield b"b"
        raise UpstreamError("it broke off")


@pytest.mark.parametrize(("seconds", "by_client"), [(4.0, False), (6.0, True)])
def test_a_client_that_reads_slowly_is_no_failure_of_the_server(
    seconds: float, by_client: bool
) -> None:
    now = [0.0]

    async def send(message: Any) -> None:
        now[0] += seconds if message.get("body") == b"a" else 0.1

    scope: Any = {"type": "http", "path": "/v1/completions"}
    with pytest.raises(UpstreamError, match="broke off") as error:
        asyncio.run(relay(BreaksOff(), scope, send, lambda: now[0]))
    assert error.value.by_client is by_client


def test_a_server_that_drains_is_left_alone_until_it_is_back() -> None:
    async def test() -> None:
        async with fake_fleet(2, probe_interval=0.05) as fleet:
            fleet.servers[0].state.lifecycle.begin_drain()
            got = [await fleet.client.post("/v1/completions", json=BODY) for _ in range(4)]
            assert [each.status_code for each in got] == [200] * 4
            assert served(fleet) == [0, 4]
            await until(lambda: len(fleet.router.available) == 1)
            fleet.servers[1].state.lifecycle.begin_drain()
            await until(lambda: not fleet.router.available)
            got = [await fleet.client.post("/v1/completions", json=BODY)]
            assert got[0].status_code == 503 and "retry-after" in got[0].headers
            assert (await fleet.client.get("/ready")).status_code == 503
            assert (await fleet.client.get("/health")).status_code == 200

    asyncio.run(test())


@pytest.mark.parametrize("partial", [b"", b'data: {"cut'])
def test_a_broken_stream_ends_with_an_error_event(partial: bytes) -> None:
    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        await send(STREAM_HEAD)
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": partial, "more_body": True})
        await asyncio.sleep(0.05)  # then it returns with an open response, and the connection ends

    async def test() -> None:
        async with scripted(server) as (client, fleet, url):
            got = await client.post("/v1/completions", json=BODY)
            first, error, done, rest = got.text.split("\n\n")
            assert (first, done, rest) == ("data: {}", "data: [DONE]", "")
            assert json.loads(error[6:])["error"]["code"] == 502
            assert url in json.loads(error[6:])["error"]["message"]
            assert fleet.servers[0].counts.broken == 1

    asyncio.run(test())


def test_errors_are_those_of_the_routes_api() -> None:
    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        await send(STREAM_HEAD)
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        await asyncio.sleep(0.05)

    async def test() -> None:
        async with scripted(server, probe_interval=60) as (client, fleet, _):
            got = await client.post("/v1/messages", json={})
            _, error, rest = got.text.split("\n\n")
            assert (error.startswith("event: error\ndata: "), rest) == (True, "")
            assert json.loads(error.split("data: ")[1])["error"]["type"] == "api_error"
            got = await client.get("/v1/messages")
            assert got.json()["error"]["type"] == "invalid_request_error"
            fleet.router.set_available(0, False)
            got = await client.post("/v1/messages", json={})
            assert got.json()["error"]["type"] == "overloaded_error"

    asyncio.run(test())


def test_a_broken_body_is_not_made_whole() -> None:
    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        head = [(b"content-type", b"application/json"), (b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        await asyncio.sleep(0.05)

    async def test() -> None:
        async with scripted(server) as (client, _, _):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post("/v1/completions", json=BODY)

    asyncio.run(test())


def test_all_servers_fail() -> None:
    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["body_writer"]._cycle.flow._transport.abort()

    async def test() -> None:
        async with scripted(server, probe_interval=60) as (client, _, _):
            await asyncio.sleep(0)
            got = await client.post("/v1/completions", json=BODY)
            assert got.status_code == 502 and "broke off" in got.json()["error"]["message"]
            got = await client.post("/v1/completions", json=BODY)
            assert got.status_code == 503

    asyncio.run(test())


def test_a_silent_server_is_a_timeout() -> None:
    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.5)

    async def test() -> None:
        async with scripted(server, read_timeout=0.1) as (client, fleet, _):
            got = await client.post("/v1/completions", json=BODY)
            assert got.status_code == 504
            assert fleet.retries == 0  # the next one would compute for as long

    asyncio.run(test())


def test_limits_and_keys_hold_before_a_server_is_asked() -> None:
    operator = ApiKey.of("op", Caller("op", scopes=frozenset()))
    keys = (*plain_keys(["k"]), operator)

    async def test() -> None:
        async with fake_fleet(1, keys=keys, max_body_bytes=1024) as fleet:
            post = fleet.client.post
            assert (await post("/v1/completions", json=BODY)).status_code == 401
            assert (await fleet.client.get("/metrics")).status_code == 401
            assert (await fleet.client.get("/ready")).status_code == 200
            key = {"authorization": "Bearer k"}
            assert (await post("/v1/completions", json=BODY, headers=key)).status_code == 200
            long = BODY | {"prompt": "a" * 2000}
            assert (await post("/v1/completions", json=long, headers=key)).status_code == 413
            foreign = key | {"origin": "http://evil"}
            assert (await post("/v1/completions", json=BODY, headers=foreign)).status_code == 403
            for path in ("/kv_events", "/v1/batches", "/abort_requests"):
                assert (await post(path, json={}, headers=key)).status_code == 404
            assert (await fleet.client.get("/metrics", headers=key)).status_code == 200
            refused = await fleet.client.get("/metrics", headers={"authorization": "Bearer op"})
            assert refused.status_code == 403
            assert served(fleet) == [1]

    asyncio.run(test())


def test_models_of_all_servers_once() -> None:
    async def test() -> None:
        async with fake_fleet(2, server_keys=plain_keys(["k"])) as fleet:
            got = await fleet.client.get("/v1/models", headers={"x-api-key": "k"})
            assert [card["id"] for card in got.json()["data"]] == ["fake", "alias"]
            assert (got.json()["first_id"], got.json()["last_id"]) == ("fake", "alias")
            assert (await fleet.client.get("/v1/models")).status_code == 401  # the servers say so

    asyncio.run(test())


def test_a_session_stays() -> None:
    async def test() -> None:
        async with fake_fleet(4, policy="session") as fleet:
            for name in ("x-session-id", "session_id", "prompt_cache_key"):
                before = served(fleet)
                for _ in range(6):
                    is_head = name == "x-session-id"
                    body = BODY if is_head else BODY | {name: "one"}
                    head = {name: "one"} if is_head else {}
                    got = await fleet.client.post("/v1/completions", json=body, headers=head)
                    assert got.status_code == 200
                after = [b - a for a, b in zip(before, served(fleet), strict=True)]
                assert sorted(after) == [0, 0, 0, 6]

    asyncio.run(test())


def test_a_drain_lets_streams_end() -> None:
    async def test() -> None:
        async with fake_fleet(1, FakeOptions(step_s=0.005)) as fleet:
            body = BODY | {"stream": True, "max_tokens": 40}
            async with fleet.client.stream("POST", "/v1/completions", json=body) as got:
                parts = got.aiter_text()
                text = await anext(parts)
                fleet.lifecycle.begin_drain()
                refused = await fleet.client.post("/v1/completions", json=BODY)
                assert refused.status_code == 503
                assert (await fleet.client.get("/ready")).status_code == 503
                text += "".join([part async for part in parts])
            assert text.endswith("data: [DONE]\n\n")
            assert await fleet.lifecycle.wait_idle(60)

    asyncio.run(test())


STREAM_HEAD: dict[str, Any] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}
FLOOD_PARTS = 1600  # 100 MiB: more than buffers of the system's sockets become
flooded = [0]


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    await send(STREAM_HEAD)
    for i in range(FLOOD_PARTS):
        part = b"data: " + b"x" * 2**16 + b"\n\n"
        await send({"type": "http.response.body", "body": part, "more_body": i < FLOOD_PARTS - 1})
        flooded[0] += 1


@contextlib.asynccontextmanager
async def scripted(
    server: Callable[[Scope, Receive, Send], Awaitable[None]], **settings: object
) -> AsyncGenerator[tuple[httpx.AsyncClient, Any, str]]:
    """A router to one server that answers requests by `server`, and probes well."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/ready":
            await server(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with (
        listening(app) as url,
        running_router([url], **settings) as (client, fleet, _),
    ):
        await until(lambda: len(fleet.available) == 1)
        yield client, fleet, url


def test_the_access_log_has_requests_of_the_router(caplog: pytest.LogCaptureFixture) -> None:
    keys = (ApiKey.of("sk-hush", Caller("web", "shop")),)

    async def test() -> None:
        async with fake_fleet(1, keys=keys, access_log=True) as fleet:
            head = {"x-api-key": "sk-hush", "x-request-id": "r-1"}
            await fleet.client.post("/v1/completions", json=BODY, headers=head)
            await fleet.client.get("/ready")

    with caplog.at_level(logging.INFO, "pagemill.access"):
        asyncio.run(test())
    (line,) = [
        record.__dict__["fields"] for record in caplog.records if record.name == "pagemill.access"
    ]
    expected = {"path": "/v1/completions", "status": 200, "request_id": "r-1", "key": "web"}
    assert {name: line[name] for name in expected} == expected
