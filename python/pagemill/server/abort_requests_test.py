"""`/abort_requests`: requests end with what they have, and the others go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import OPERATOR
from pagemill.server.app import create_admin_app
from pagemill.server.testing.fake_server import FakeServer, fake_server

COMPLETION = {"prompt": "a", "max_tokens": 100}


async def abort(server: FakeServer, status: int = 200, **fields: Any) -> Any:
    transport = httpx.ASGITransport(create_admin_app(server.state, None, OPERATOR))
    async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
        response = await client.post("/abort_requests", json=fields)
    assert response.status_code == status, response.text
    return response.json()


async def begun(server: FakeServer, path: str, **fields: Any) -> asyncio.Task[httpx.Response]:
    """A request that the engine has, and does not run."""
    server.engine.paused = True
    before = server.engine.stats().num_submitted
    task = asyncio.create_task(server.client.post(path, json=fields))
    while server.engine.stats().num_submitted == before:
        await asyncio.sleep(0.001)
    return task


def test_some_and_all() -> None:
    async def body() -> None:
        async with fake_server() as server:
            first, second = [
                await begun(server, "/v1/completions", **COMPLETION, request_id=name)
                for name in ("a", "b")
            ]
            streamed = await begun(
                server, "/v1/chat/completions", stream=True, messages=[
                    {"role": "user", "content": "a"}
                ],
            )  # fmt: skip
            assert await abort(server, request_ids=["a", "absent"]) == {
                "aborted": 1,
                "status": "aborted",
            }
            (choice,) = (await first).json()["choices"]
            assert (choice["finish_reason"], choice["text"]) == ("abort", "")
            assert not second.done()
            assert (await abort(server))["aborted"] == 2
            assert (await second).json()["choices"][0]["finish_reason"] == "abort"
            assert '"finish_reason":"abort"' in (await streamed).text
            assert (await abort(server))["aborted"] == 0
            assert server.async_engine.num_live == 0
            server.engine.paused = False
            answer = await server.client.post("/v1/completions", json=COMPLETION)
            assert answer.json()["choices"][0]["finish_reason"] != "abort"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("pooled_size", "path", "fields"),
    [
        (4, "/v1/embeddings", {"input": "a"}),
        (0, "/v1/completions", {**COMPLETION, "use_beam_search": True}),
    ],
)
def test_requests_without_a_part_of_an_answer(
    pooled_size: int, path: str, fields: dict[str, Any]
) -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=pooled_size)) as server:
            waiting = await begun(server, path, **fields)
            assert (await abort(server))["aborted"] == 1
            refused = await waiting
            assert refused.status_code == 503, refused.text
            assert "The operator has ended" in refused.text

    asyncio.run(body())


def test_cohere_chats_end_with_an_error() -> None:
    async def body() -> None:
        async with fake_server() as server:
            chat = await begun(server, "/v2/chat", messages=[{"role": "user", "content": "a"}])
            assert (await abort(server))["aborted"] == 1
            assert (await chat).json()["finish_reason"] == "ERROR"

    asyncio.run(body())


def test_a_misspelled_field_ends_nothing() -> None:
    async def body() -> None:
        async with fake_server() as server:
            waiting = await begun(server, "/v1/completions", **COMPLETION)
            refused = await abort(server, 400, ids=["absent"])
            assert "`ids`" in refused["error"]["message"]
            assert not waiting.done()
            assert (await abort(server))["aborted"] == 1
            await waiting

    asyncio.run(body())


def test_with_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with fake_server() as server:
            several = replace(server.state.config, api_server_count=2)
            monkeypatch.setattr(server.state, "config", several)
            refused = await abort(server, 400)
            assert "/pause" in refused["error"]["message"]

    asyncio.run(body())
