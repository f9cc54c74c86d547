"""The routes of a host of models: requests by the model that they name, lists, operators, keys."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagemill.config import ConfigError, build
from pagemill.config.serve_models import ServeModelsConfig, read_models
from pagemill.model_host.testing.fake_host import FakeHost, fake_host
from pagemill.router.testing.fake_fleet import until
from pagemill.server.access.caller import GRANTS, Caller, Scope
from pagemill.server.access.keys import ApiKey

TWO = {"a": {"model": "delay=0.1", "aliases": ["first"]}, "b": {"model": "fails=it+is+broken"}}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 240))


def refusal(got: httpx.Response, status: int) -> dict[str, Any]:
    assert got.status_code == status, got.text
    return got.json()["error"]


async def statuses(host: FakeHost) -> dict[str, str]:
    got = (await host.client.get("/v1/models")).json()["data"]
    return {card["id"]: card["status"]["value"] for card in got}


def test_the_list_has_the_status_of_each_model(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    entries = {**TWO, "a": {"model": f"loads={loaded}", "aliases": ["first"]}}

    async def test() -> None:
        async with fake_host(entries) as host:
            unloaded = {"a": "unloaded", "first": "unloaded", "b": "unloaded"}
            assert await statuses(host) == unloaded
            request = asyncio.create_task(host.complete("a"))
            await until(lambda: host.model("a").users == 1)
            assert (await statuses(host))["first"] == "loading"
            loaded.touch()
            assert (await request).status_code == 200
            await host.complete("b")
            assert await statuses(host) == {"a": "loaded", "first": "loaded", "b": "failed"}
            got = (await host.client.get("/v1/models/b")).json()
            assert got["status"] == {"value": "failed", "reason": "it is broken"}

    run(test())


def test_an_unknown_model_is_refused_with_those_that_there_are() -> None:
    async def test() -> None:
        async with fake_host(TWO) as host:
            error = refusal(await host.complete("c"), 404)
            assert error["param"] == "model" and error["message"].endswith(
                "There are: a, first, b."
            )
            assert refusal(await host.client.get("/v1/models/c/d"), 404)["type"] == "NotFoundError"
            assert refusal(await host.complete("a", model=3), 400)["param"] == "model"
            head = {"content-type": "application/json"}
            got = await host.client.post("/v1/completions", content=b"{", headers=head)
            assert "not valid JSON" in refusal(got, 400)["message"]
            nested = b'{"model": "a", "x": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
            got = await host.client.post("/v1/completions", content=nested, headers=head)
            assert "nested too deeply" in refusal(got, 400)["message"]
            got = await host.client.post("/v1/messages", json={"model": "c"})
            assert got.json()["error"]["type"] == "not_found_error"
            assert refusal(await host.client.get("/v1/nothing"), 404)
            assert refusal(await host.client.post("/v1/batches", json={"model": "a"}), 404)
            assert host.loaded() == []

    run(test())


def test_forms_name_a_model() -> None:
    async def test() -> None:
        async with fake_host({**TWO, "c": {"model": ""}}, max_body_bytes=4096) as host:
            path, files = "/v1/audio/transcriptions", {"file": bytes(300)}
            got = await host.client.post(path, files=files, data={"model": "c"})
            assert got.json()["path"] == path and host.loaded() == ["c"]
            got = await host.client.post(path, files=files)
            assert got.status_code == 200 and host.loaded() == ["a", "c"]
            got = await host.client.post(path, files={"file": bytes(200000)})
            refusal(got, 413)
            for field in ("model[]", "model[name]"):
                got = await host.client.post(path, files=files, data={field: "a"})
                assert refusal(got, 400)["param"] == "model"

    run(test())


def test_paths_of_plugins_pass_if_they_are_named() -> None:
    async def test() -> None:
        path = "/plugins/alpaca/shout"
        async with fake_host(TWO, pass_path=(path,)) as host:
            got = await host.client.post(path, json={"model": "a"})
            assert got.json()["path"] == path and host.loaded() == ["a"]
            refusal(await host.client.post("/plugins/alpaca/other", json={"model": "a"}), 404)
            assert host.loaded() == ["a"]

    run(test())


def test_streams_pass_and_end_with_their_client() -> None:
    async def test() -> None:
        async with fake_host({"An/ä:b": {"model": "", "aliases": ["a"]}}) as host:
            got = await host.complete("a", stream=True, seconds=0.3)
            assert got.text == "data: {}\n\n" * 3 + "data: [DONE]\n\n"
            body = {"model": "a", "stream": True, "seconds": 30}
            async with host.client.stream("POST", "/v1/completions", json=body) as stream:
                await anext(stream.aiter_bytes())
                assert host.model("a").users == 1
            await until(lambda: host.model("a").users == 0)
            assert host.model("a").counts.requests == {"served": 1, "aborted": 1}

    run(test())


def test_an_operator_loads_and_unloads() -> None:
    admin, web = (
        ApiKey.of("sk-admin", Caller("admin", scopes=frozenset(GRANTS))),
        ApiKey.of("sk-web", Caller("web", models=frozenset({"a"}))),
    )

    async def test() -> None:
        entries = {**TWO, "kept": {"model": "", "keep": True}}
        async with fake_host(entries, keys=(admin, web)) as host:

            async def post(path: str, key: str, model: str = "a") -> httpx.Response:
                head = {"authorization": f"Bearer {key}"}
                return await host.client.post(path, json={"model": model}, headers=head)

            refusal(await host.complete("a"), 401)
            assert "'admin'" in refusal(await post("/models/load", "sk-web"), 403)["message"]
            got = await post("/models/load", "sk-admin", "first")
            assert got.json() == {"model": "a", "status": {"value": "loaded"}}
            got = await post("/models/unload", "sk-admin")
            assert got.json()["status"]["value"] == "unloaded" and "a" not in host.loaded()
            assert (
                "it is broken"
                in refusal(await post("/models/load", "sk-admin", "b"), 503)["message"]
            )
            assert (
                "is kept"
                in refusal(await post("/models/unload", "sk-admin", "kept"), 409)["message"]
            )
            refusal(await post("/models/load", "sk-admin", ""), 400)
            # A key sees and uses its own models only.
            got = await post("/v1/completions", "sk-web", "kept")
            assert refusal(got, 404)["message"].endswith("There are: a.")
            assert (await post("/v1/completions", "sk-web")).status_code == 200
            head = {"authorization": "Bearer sk-web"}
            cards = (await host.client.get("/v1/models", headers=head)).json()["data"]
            assert [card["id"] for card in cards] == ["a"]

    run(test())


def test_a_key_without_inference_loads_nothing() -> None:
    keys = (ApiKey.of("sk", Caller("monitor", scopes=frozenset({Scope.METRICS}))),)

    async def test() -> None:
        async with fake_host(TWO, keys=keys) as host:
            head = {"authorization": "Bearer sk"}
            got = await host.client.post("/v1/completions", json={"model": "a"}, headers=head)
            refusal(got, 403)
            assert host.model("a").counts.starts == 0

    run(test())


def test_probes_and_metrics(tmp_path: Path) -> None:
    async def test() -> None:
        loaded = tmp_path / "loaded"
        entries = {**TWO, "kept": {"model": f"loads={loaded}", "keep": True}}
        async with fake_host(entries) as host:
            assert (await host.client.get("/health")).status_code == 200
            error = refusal(await host.client.get("/ready"), 503)
            assert error["message"] == "A model that is kept is being loaded."
            loaded.touch()
            await until(lambda: "kept" in host.loaded())
            assert (await host.client.get("/ready")).status_code == 200
            await host.complete("a")
            await host.complete("b")
            lines = (await host.client.get("/metrics")).text.splitlines()
            for line in (
                'pagemill:models_loaded{model="a"} 1.0',
                'pagemill:models_failures_total{model="b"} 1.0',
                'pagemill:models_requests_total{model="a",outcome="served"} 1.0',
                'pagemill:models_requests_total{model="b",outcome="refused"} 1.0',
                'pagemill:models_start_seconds_count{model="a"} 1.0',
                "pagemill:models_requests_waiting 0.0",
            ):
                assert line in lines
            got = await host.client.get("/metrics", params={"model": "a"})
            assert got.json()["path"] == "/metrics?model=a"  # its process answers
            refusal(await host.client.get("/metrics", params={"model": "b"}), 503)
            paths = (await host.client.get("/openapi.json")).json()["paths"]
            assert {"/v1/models", "/models/load", "/v1/chat/completions"} <= set(paths)

    run(test())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lists no model"),
        ("a: 3", "Expected `object`"),
        ("a: {model: x, idle: 3}", "unknown field `idle`"),
        ("a: {model: x, idle-timeout: -1}", "`$.idle-timeout`"),
        ("a: {model: x, aliases: [b]}\nb: {model: y}", "'b' stands for two models"),
        ("a: {model: x, options: {lora-modules: [a=f]}}", "'a' stands for two models"),
        ("a: {model: x, options: {max-modellen: 1}}", "did you mean 'max-model-len'?"),
        ("a: {model: x, options: {kv-cache-dtype: f3}}", "--kv-cache-dtype"),
        ("a: {model: x, options: {port: 1}}", "'port' cannot differ between models"),
        ("a: {model: x, options: {api-key: k}}", "'api-key' cannot differ between models"),
        ("a: {model: x, options: {isolate-engine: true}}", "each model has one process"),
        ("a: {model: x, keep: true}\nb: {model: y}", "--max-models 1: 1 models are kept"),
    ],
)
def test_mistakes_of_the_file(text: str, said: str, tmp_path: Any) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text)
    config = build(ServeModelsConfig, {"models": str(path), "max_models": 1})
    with pytest.raises(ConfigError) as raised:
        read_models(config)
    assert said in str(raised.value)
