"""More requests than can run: their order, rejections, and the time to retry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

ONE_AT_A_TIME = ("--max-model-len", "4096", "--max-num-seqs", "1")
LONG = 4000  # tokens: more than a test waits for


def body(max_tokens: int, **fields: Any) -> dict[str, Any]:
    return {
        "model": NAME,
        "prompt": "Once upon a time",
        "max_tokens": max_tokens,
        "ignore_eos": True,
        **fields,
    }


@contextlib.asynccontextmanager
async def busy(client: httpx.AsyncClient, **fields: Any) -> AsyncGenerator[None, None]:
    """A long request runs meanwhile and disconnects afterwards."""
    request = body(LONG, stream=True, **fields)
    async with client.stream("POST", "/v1/completions", json=request) as response:
        assert response.status_code == 200
        lines = response.aiter_lines()  # one that is left by `break` would hang up
        assert await anext(lines)
        yield


def with_server(folder: Path, options: Sequence[str], check: Any) -> None:
    async def run(server: ServerProcess) -> None:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=120) as client:
            await check(server, client)

    with serve(SMOLLM2, folder, (*ONE_AT_A_TIME, *options)) as server:
        asyncio.run(run(server))


def assert_try_later(response: httpx.Response, flag: str) -> None:
    assert response.status_code == 429, response.text
    assert int(response.headers["retry-after"]) >= 1
    error = response.json()["error"]
    assert error["type"] == "RateLimitError"
    assert flag in error["message"]


async def until_waiting(server: ServerProcess, count: int) -> None:
    async with asyncio.timeout(120):
        while await asyncio.to_thread(server.metric, "num_requests_waiting") != count:
            await asyncio.sleep(0.01)


def test_priority_is_honoured_and_a_full_queue_refuses(tmp_path: Path) -> None:
    async def check(server: ServerProcess, client: httpx.AsyncClient) -> None:
        ended: list[int] = []

        async def one(priority: int) -> None:
            response = await client.post("/v1/completions", json=body(8, priority=priority))
            assert response.status_code == 200, response.text
            ended.append(priority)

        async with busy(client, priority=-5):
            waiting = [asyncio.create_task(one(3))]
            await until_waiting(server, 1)
            waiting.append(asyncio.create_task(one(1)))
            await until_waiting(server, 2)
            refused = await client.post("/v1/completions", json=body(8, priority=-9))
            assert_try_later(refused, "--max-num-queued-reqs")
        await asyncio.gather(*waiting)
        assert ended == [1, 3]

    options = ("--scheduling-policy", "priority", "--max-num-queued-reqs", "2")
    with_server(tmp_path, options, check)


def test_every_process_knows_that_the_queue_is_full(tmp_path: Path) -> None:
    async def check(server: ServerProcess, client: httpx.AsyncClient) -> None:
        async def one() -> httpx.Response:
            # By a connection of its own, to any of the processes.
            async with httpx.AsyncClient(base_url=server.base_url, timeout=120) as other:
                return await other.post("/v1/completions", json=body(8))

        async with busy(client):
            waiting = asyncio.create_task(one())
            await until_waiting(server, 1)
            for refused in await asyncio.gather(*(one() for _ in range(20))):
                assert_try_later(refused, "--max-num-queued-reqs")
            assert server.metric("requests_turned_away_total") > 10
        assert (await waiting).status_code == 200
        for _ in range(10):
            assert (await one()).status_code == 200

    with_server(tmp_path, ("--max-num-queued-reqs", "1", "--api-server-count", "2"), check)


def test_queue_time_and_the_share_of_a_tenant_are_bounded(tmp_path: Path) -> None:
    async def check(server: ServerProcess, client: httpx.AsyncClient) -> None:
        async with busy(client):
            blue = {"X-Tenant-Id": "blue"}
            late = asyncio.create_task(client.post("/v1/completions", json=body(8), headers=blue))
            await until_waiting(server, 1)
            second = await client.post("/v1/completions", json=body(8), headers=blue)
            assert_try_later(second, "--max-waiting-per-tenant")
            assert_try_later(await late, "--max-queue-time")
        assert (await client.post("/v1/completions", json=body(2))).status_code == 200

    options = ("--scheduling-policy", "fair", "--tenant-weights", '{"blue": 2}')
    options += ("--max-waiting-per-tenant", "1", "--max-queue-time", "5")
    options += ("--trust-tenant-header",)
    with_server(tmp_path, options, check)


def test_a_request_with_a_deadline(tmp_path: Path) -> None:
    async def check(server: ServerProcess, client: httpx.AsyncClient) -> None:
        for fields in ({"timeout": 0.3}, {}):  # the request's own, the server's
            late = await client.post("/v1/completions", json=body(LONG, **fields))
            assert late.status_code == 504, late.text
            assert late.json()["error"]["type"] == "TimeoutError"
        server.wait_until_idle()
        assert (await client.post("/v1/completions", json=body(2))).status_code == 200

    with_server(tmp_path, ["--request-timeout", "5"], check)
