"""200 streams at once, a third of which hang up early: nothing stays allocated or running."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

STREAMS = 200
TOKENS = 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # A pool that cannot hold them all, so that requests wait and are preempted as well.
    options = ("--max-model-len", "512", "--max-num-seqs", "64", "--kv-cache-memory-bytes", "24MiB")
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), options) as running:
        yield running


async def one(client: httpx.AsyncClient, index: int, hang_up_after: int | None) -> str:
    """The last line of the stream, or "left" after `hang_up_after` events."""
    body = {
        "model": NAME,
        "prompt": f"Request number {index} is about " + "words " * (index % 40),
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "seed": index,
        "stream": True,
    }
    last, events = "", 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        if hang_up_after == 0:
            return "left"
        async for line in response.aiter_lines():
            if line:
                last, events = line, events + 1
                if events == hang_up_after:
                    return "left"
    return last


def test_streams(server: ServerProcess) -> None:
    rng = random.Random(3)

    async def all_of_them() -> list[str]:
        limits = httpx.Limits(max_connections=STREAMS)
        async with httpx.AsyncClient(
            base_url=server.base_url, limits=limits, timeout=300
        ) as client:
            jobs = [
                one(client, i, rng.randrange(0, 8) if i % 3 == 0 else None) for i in range(STREAMS)
            ]
            return await asyncio.gather(*jobs)

    ends = asyncio.run(all_of_them())
    left = [end for end in ends if end == "left"]
    assert len(left) == len(range(0, STREAMS, 3))
    assert all(end in ("left", "data: [DONE]") for end in ends)
    server.wait_until_idle()
    assert server.metric("kv_blocks_used") == 0
    assert server.metric("request_success_total", finished_reason="abort") > 0
    assert server.metric("request_success_total", finished_reason="length") >= STREAMS - len(left)
    assert server.metric("request_success_total", finished_reason="error") == 0


def test_it_still_answers(server: ServerProcess) -> None:
    got = httpx.post(
        f"{server.base_url}/v1/completions",
        json={"prompt": "Hello", "max_tokens": 4, "temperature": 0},
        timeout=60,
    )
    assert got.status_code == 200
