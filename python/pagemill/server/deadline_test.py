"""Requests that have to end in time, and a wall clock that jumps meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.testing.fake_server import FakeServer, fake_server

SLOW = FakeOptions(step_s=0.01)
MESSAGES = [{"role": "user", "content": "abcd"}]
LONG = {"max_tokens": 200, "ignore_eos": True}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "abcd", **LONG},
    "/v1/chat/completions": {"messages": MESSAGES, **LONG},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 200},
    "/v1/responses": {"input": "abcd", "ignore_eos": True},
    "/v2/chat": {"messages": MESSAGES, "max_tokens": 200},
}
DAY_S = 86_400.0


async def post(fake: FakeServer, path: str, **fields: object) -> httpx.Response:
    return await fake.client.post(path, json={**BODIES[path], **fields})


@pytest.mark.parametrize("path", BODIES)
def test_a_request_that_takes_too_long_is_504(path: str) -> None:
    async def main() -> None:
        async with fake_server(SLOW) as fake:
            began = time.monotonic()
            answer = await post(fake, path, timeout=0.1)
            assert answer.status_code == 504, answer.text
            assert time.monotonic() - began >= 0.1
            assert fake.engine.stats().generation_tokens < 200
            assert fake.async_engine.num_live == 0

    asyncio.run(main())


def test_a_stream_ends_with_an_error_event() -> None:
    async def main() -> None:
        async with fake_server(FakeOptions(late_at_position=3)) as fake:
            answer = await post(fake, "/v1/completions", timeout=60, stream=True)
            *events, error, done = answer.text.strip().split("\n\n")
            assert answer.status_code == 200 and done == "data: [DONE]" and events
            assert json.loads(error.removeprefix("data: "))["error"]["code"] == 504

    asyncio.run(main())


def test_embeddings_have_deadlines() -> None:
    async def main() -> None:
        async with fake_server(FakeOptions(pooled_size=4)) as fake:
            body = {"input": ["abcd"] * 20, "timeout": 1e-6}
            answer = await fake.client.post("/v1/embeddings", json=body)
            assert answer.status_code == 504

    asyncio.run(main())


def test_the_servers_limit_holds_for_all_and_the_shorter_one_wins() -> None:
    async def main() -> None:
        async with fake_server(SLOW, request_timeout=0.1) as fake:
            assert (await post(fake, "/v1/completions")).status_code == 504
            assert (await post(fake, "/v1/completions", timeout=60)).status_code == 504
            short = await post(fake, "/v1/completions", max_tokens=2)
            assert short.status_code == 200
        async with fake_server(SLOW, request_timeout=60) as fake:
            assert (await post(fake, "/v1/completions", timeout=0.1)).status_code == 504

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [0, -1, 1e9, "soon"])
def test_timeouts_that_are_refused(timeout: object) -> None:
    async def main() -> None:
        async with fake_server() as fake:
            answer = await post(fake, "/v1/completions", timeout=timeout)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "timeout"

    asyncio.run(main())


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_jumps_of_the_wall_clock_change_nothing(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = KeyLimits(requests_per_minute=3, tokens_per_minute=100_000)
    keys = (ApiKey.of("k", Caller("web", limits=limits)),)
    wall = time.time

    async def main() -> None:
        async with fake_server(SLOW, keys=keys) as fake:
            fake.client.headers["X-API-Key"] = "k"
            running = asyncio.create_task(post(fake, "/v1/completions", max_tokens=30))
            late = asyncio.create_task(post(fake, "/v1/completions", timeout=0.3))
            await asyncio.sleep(0.05)
            began = time.monotonic()
            monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
            assert (await running).status_code == 200
            assert (await late).status_code == 504
            assert time.monotonic() - began > 0.2
            third = await post(fake, "/v1/completions", max_tokens=2)
            assert third.headers["x-ratelimit-remaining-requests"] == "0"
            refused = await post(fake, "/v1/completions", max_tokens=2)
            assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 20

    asyncio.run(main())
