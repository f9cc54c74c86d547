"""A pool so small that requests are preempted continually: each still gets its greedy tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

TOKENS = 72
PROMPTS = [
    f"Chapter {i}. The {thing} stood on the hill, and"
    for i, thing in enumerate(
        (
            "castle",
            "mill",
            "old tree",
            "lighthouse",
            "ship",
            "tower",
            "school",
            "bridge",
            "church",
            "farm",
            "market",
            "station",
        )
    )
]
# 25 blocks of 16 tokens; each request comes to hold 6.
SMALL_POOL = ("--max-model-len", "256", "--kv-cache-memory-bytes", "9MiB")
TIERS = {
    "pool only": (),
    "host tier": ("--kv-offloading-bytes", "64MiB"),
    "small host tier and disk": (
        *("--kv-offloading-bytes", "12MiB", "--kv-offloading-disk-bytes", "64MiB"),
        *("--kv-offloading-policy", "arc"),
    ),
}


async def texts(server: ServerProcess, at_once: int) -> list[str]:
    """The continuation of each prompt, `at_once` of them at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(client: httpx.AsyncClient, prompt: str) -> str:
        body = {"model": NAME, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        async with gate:
            response = await client.post("/v1/completions", json=body | {"ignore_eos": True})
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["text"]

    async with httpx.AsyncClient(base_url=server.base_url, timeout=300) as client:
        return await asyncio.gather(*(one(client, prompt) for prompt in PROMPTS))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Each prompt by itself, in a pool that is large enough."""
    with serve(SMOLLM2, tmp_path_factory.mktemp("alone"), ("--max-model-len", "256")) as server:
        expected = asyncio.run(texts(server, at_once=1))
        assert server.metric("num_preemptions_total") == 0
    return expected


@pytest.mark.parametrize("tier", TIERS)
def test_every_request_gets_its_exact_tokens(alone: list[str], tier: str, tmp_path: Path) -> None:
    options = (*SMALL_POOL, *TIERS[tier])
    if "disk" in tier:
        options = (*options, "--kv-offloading-disk-path", str(tmp_path / "kv"))
    with serve(SMOLLM2, tmp_path, options) as server:
        for _ in range(2):
            assert asyncio.run(texts(server, at_once=len(PROMPTS))) == alone
        assert server.metric("num_preemptions_total") >= len(PROMPTS)
        assert (server.metric("external_prefix_cache_hits_total") > 0) == (tier != "pool only")
        assert server.metric("kv_failed_transfers_total") == 0
        server.wait_until_idle()
        assert server.stop() == 0
