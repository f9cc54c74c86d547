"""Many more clients than a server can serve: it refuses most, and serves the others nearly as fast
as if they were alone; then they leave, and the next request is served at once."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve
from tests.faults.overload import Clients, Outcome

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

CLIENTS = int(os.environ.get("PAGEMILL_TEST_CLIENTS", "200"))
SERVED = 50  # at a time
HAS_FIGURES = CLIENTS > 500  # the sample runs beside other tests
SLOWER = 1.2
SECONDS = 24 if HAS_FIGURES else 8
ARRIVAL_S = 4  # all clients come at once, and it takes them that long to get a turn each
# Of different lengths: requests that all begin and end together are served faster.
BODIES = [
    {"prompt": "Once upon a time", "max_tokens": n, "ignore_eos": True, "temperature": 0}
    for n in range(8, 25)
]
OPTIONS = (
    *("--max-model-len", "512", "--max-num-seqs", str(SERVED)),
    *("--max-num-queued-reqs", "2", "--kv-cache-memory-bytes", "64MiB"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, CLIENTS + 1024), hard))
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), OPTIONS) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def report(name: str, found: Outcome, since: float, resident_bytes: int) -> None:
    ok, waits = found.statuses[200], found.retry_after_s or [0]
    print(
        f"{name}: {ok} served, {sum(found.statuses.values()) - ok} refused; median"
        f" {found.percentile(0.5, since):.3f} s, with the arrival {found.percentile(0.5):.3f} s;"
        f" 95 % within {found.percentile(0.95, since):.3f} s; Retry-After"
        f" {sum(waits) / len(waits):.1f} s, at most {max(waits)} s; {resident_bytes / 1e6:.1f} MB"
    )


async def overload(server: ServerProcess, clients: Clients) -> tuple[Outcome, list[int]]:
    """What all clients got, and the server's memory from the arrival to the end."""
    running = asyncio.create_task(clients.run(CLIENTS, SECONDS))
    resident: list[int] = []
    await asyncio.sleep(ARRIVAL_S)
    while not running.done():
        resident.append(server.resident_bytes)
        await asyncio.wait({running}, timeout=1)
    return running.result(), resident


def test_overload(server: ServerProcess) -> None:
    clients = Clients(int(server.base_url.rpartition(":")[2]), "/v1/completions", BODIES)
    asyncio.run(clients.run(SERVED, 1))  # one-time allocations
    alone = asyncio.run(clients.run(SERVED, SECONDS / 2))
    report(f"\n{SERVED} clients", alone, 0, server.resident_bytes)
    many, resident = asyncio.run(overload(server, clients))
    report(f"{CLIENTS} clients", many, ARRIVAL_S, resident[-1])
    began = time.monotonic()
    next_one = httpx.post(f"{server.base_url}/v1/completions", json=BODIES[0], timeout=60)
    next_s = time.monotonic() - began
    print(f"the next request: {next_s:.3f} s")
    assert not alone.mistakes and not many.mistakes, (alone.mistakes[:3], many.mistakes[:3])
    assert many.statuses[429] + many.statuses[503] > 0
    assert max(resident) < 1.05 * resident[len(resident) // 3], resident  # a late arrival
    assert next_one.status_code == 200
    if HAS_FIGURES:
        assert many.percentile(0.5, ARRIVAL_S) < SLOWER * alone.percentile(0.5)
        assert next_s < alone.percentile(0.5)
    server.wait_until_idle()
    assert "Traceback" not in server.log.read_text()
