"""Many more clients than a server can serve: it refuses most, and serves the others as fast as if
they were alone; then they leave, and nothing remains of them."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve
from tests.faults.overload import Clients, Outcome

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

CLIENTS = int(os.environ.get("PAGEMILL_TEST_CLIENTS", "200"))
SERVED = 50  # at a time
SECONDS = 20 if CLIENTS > 500 else 6
BODY = {"prompt": "Once upon a time", "max_tokens": 16, "ignore_eos": True, "temperature": 0}
OPTIONS = (
    *("--max-model-len", "512", "--max-num-seqs", str(SERVED)),
    *("--max-num-queued-reqs", "4", "--kv-cache-memory-bytes", "64MiB"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, CLIENTS + 1024), hard))
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), OPTIONS) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def row(name: str, found: Outcome, seconds: float, resident_bytes: int) -> str:
    waits = found.retry_after_s or [0]
    return (
        f"{name:>14} {found.statuses[200]:6} {sum(found.statuses.values()) - found.statuses[200]:8}"
        f" {found.statuses[200] / seconds:8.1f} {found.percentile(0.5):8.3f}"
        f" {found.percentile(0.95):8.3f} {sum(waits) / len(waits):8.1f} {max(waits):8}"
        f" {resident_bytes / 1e6:8.1f}"
    )


def test_overload(server: ServerProcess) -> None:
    port = int(server.base_url.rpartition(":")[2])
    clients = Clients(port, "/v1/completions", BODY)
    asyncio.run(clients.run(SERVED, 1))  # one-time allocations
    alone = asyncio.run(clients.run(SERVED, SECONDS / 2))
    alone_bytes = server.resident_bytes
    many = asyncio.run(clients.run(CLIENTS, SECONDS))
    many_bytes = server.resident_bytes
    began = time.monotonic()
    next_one = httpx.post(f"{server.base_url}/v1/completions", json=BODY, timeout=60)
    next_s = time.monotonic() - began
    print(
        "\n       clients     ok  refused     ok/s    p50 s    p95 s   wait s  longest      MB\n"
        + row(str(SERVED), alone, SECONDS / 2, alone_bytes)
        + "\n"
        + row(str(CLIENTS), many, SECONDS, many_bytes)
        + f"\nthe next request: {next_s:.3f} s"
    )
    assert not alone.mistakes and not many.mistakes, (alone.mistakes[:3], many.mistakes[:3])
    assert many.statuses[429] + many.statuses[503] > 0
    assert many.percentile(0.5) < 1.2 * alone.percentile(0.5)
    assert many_bytes < 1.1 * alone_bytes
    assert next_one.status_code == 200 and next_s < alone.percentile(0.5)
    server.wait_until_idle()
    assert "Traceback" not in Path(server.log).read_text()
