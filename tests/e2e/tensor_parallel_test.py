"""`pagemill serve --tensor-parallel-size 2`: all ranks answer together, end together, and leave
nothing behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

OPTIONS = ("--max-model-len", "512", "--tensor-parallel-size", "2")


def worker(server: ServerProcess) -> int:
    """The process of rank 1."""
    children = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    (rank_1,) = (
        pid for pid in pids if "rank_worker" in Path(f"/proc/{pid}/cmdline").read_text()
    )  # another one renders chat templates
    return rank_1


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def complete(server: ServerProcess) -> httpx.Response:
    body = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    return httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)


def test_it_answers_and_stops_with_its_worker(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, OPTIONS) as server:
        pid = worker(server)
        assert complete(server).json()["choices"][0]["text"].startswith(" Paris")
        assert "9 heads with 3 KV heads do not divide evenly" in server.log.read_text()
        assert server.stop() == 0
        assert not running(pid)


def test_a_signal_to_all_processes_still_drains(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, OPTIONS) as server:
        os.kill(worker(server), signal.SIGTERM)
        os.kill(worker(server), signal.SIGINT)
        assert complete(server).status_code == 200
        assert server.stop() == 0


def test_a_killed_worker_ends_the_server_with_its_name(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, OPTIONS) as server:
        pid = worker(server)
        assert complete(server).status_code == 200
        os.kill(pid, signal.SIGKILL)
        assert server.process.wait(60) == 1
        log = server.log.read_text()
        assert f"rank 1 of 2 (process {pid}) was killed by signal 9" in log


def test_a_killed_server_leaves_no_worker(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, OPTIONS) as server:
        pid = worker(server)
        server.process.kill()
        server.process.wait()
        deadline = time.monotonic() + 60
        while running(pid):
            assert time.monotonic() < deadline, "the worker outlives the server"
            time.sleep(0.02)
