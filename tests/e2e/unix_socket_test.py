"""A server that clients reach by a path (`--uds`)."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, wait_until_ready

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)


@pytest.fixture(name="path")
def _path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        yield Path(folder) / "clients"


def _children(server: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


def _listens(process: psutil.Process, path: Path) -> bool:
    return any(
        each.laddr == str(path) and not each.raddr for each in process.net_connections("unix")
    )


@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_server_on_a_path(tmp_path: Path, path: Path, num_processes: int) -> None:
    command = [sys.executable, "-m", "pagemill.cli", "serve", SMOLLM2, f"--uds={path}"]
    if num_processes:
        command.append(f"--api-server-count={num_processes}")
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen([*command, "--max-model-len=256"], stderr=output, text=True)
    try:
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://x", timeout=60) as client:
            wait_until_ready(server, client, log)
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
            fields = {"prompt": "a", "max_tokens": 2}
            assert client.post("/v1/completions", json=fields).status_code == 200
        accepting = [each for each in _children(server) if _listens(each, path)]
        assert len(accepting) == num_processes
        for stopped in accepting:  # the other ones serve
            stopped.suspend()
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as client:
                assert client.post("http://x/v1/completions", json=fields).status_code == 200
            stopped.resume()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert not path.exists() and f"unix:{path}" in log.read_text()
    finally:
        server.kill()
        server.wait()
