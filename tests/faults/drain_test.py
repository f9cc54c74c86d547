"""Signals: running requests finish, new ones are refused, and the process exits with 0."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

LONG = {"prompt": "Once upon a time", "ignore_eos": True, "stream": True}


def events(response: httpx.Response) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in response.iter_lines() if line)


def start(server: ServerProcess, client: httpx.Client, tokens: int):
    return client.stream(
        "POST", f"{server.base_url}/v1/completions", json={**LONG, "max_tokens": tokens}
    )


def test_running_requests_finish(tmp_path: Path) -> None:
    options = ["--shutdown-timeout", "600"]  # far more than they need on a busy machine
    with serve(SMOLLM2, tmp_path, options) as server, httpx.Client(timeout=120) as client:
        with start(server, client, 500) as response:
            lines = events(response)
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 60
            while client.get(f"{server.base_url}/ready").status_code == 200:
                assert time.monotonic() < deadline
            assert client.get(f"{server.base_url}/health").status_code == 200
            refused = client.post(f"{server.base_url}/v1/completions", json={"prompt": "x"})
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            rest = list(lines)
        assert rest[-1] == "[DONE]"
        assert json.loads(rest[-2])["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(60) == 0


def test_what_does_not_finish_in_time_is_told(tmp_path: Path) -> None:
    options = ["--shutdown-timeout", "0.5"]
    with serve(SMOLLM2, tmp_path, options) as server, httpx.Client(timeout=120) as client:
        with start(server, client, 8000) as response:
            lines = events(response)
            next(lines)
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert rest[-1] == "[DONE]"
        assert json.loads(rest[-2])["error"]["code"] == 503
        assert server.process.wait(60) == 0
        assert time.monotonic() - began < 60


def test_an_idle_server_exits_at_once(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Far less than the time that requests may take.
        with serve(SMOLLM2, tmp_path, ["--shutdown-timeout", "600"]) as server:
            server.process.send_signal(number)
            assert server.process.wait(60) == 0
            assert "Traceback" not in server.log.read_text()


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with (
        serve(SMOLLM2, tmp_path, ["--shutdown-timeout", "600"]) as server,
        httpx.Client(timeout=120) as client,
        start(server, client, 8000) as response,
    ):
        lines = events(response)  # kept: a collected iterator would hang up
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while client.get(f"{server.base_url}/ready").status_code == 200:
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        rest: list[str] = []
        with contextlib.suppress(httpx.TransportError):
            for line in lines:
                rest.append(line)
        assert not any('"length"' in line for line in rest), "it was waited for"
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("options", [(), ("--isolate-engine",)], ids=["alone", "isolated"])
def test_a_server_that_is_loading_leaves_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    log = tmp_path / "log"
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, "-m", "pagemill.cli", "serve", SMOLLM2, "--port", "0", *options]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stderr=out, stdout=out, env={**os.environ, "TMPDIR": str(folder)}
        )
    try:
        deadline = time.monotonic() + 60
        while not list(folder.iterdir()):  # of stored responses
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()
    assert not list(folder.iterdir())


def test_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the server inherits
    try:
        with serve(SMOLLM2, tmp_path) as server:
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            assert httpx.get(f"{server.base_url}/ready", timeout=60).status_code == 200
            assert server.stop() == 0
    finally:
        signal.signal(signal.SIGHUP, before)
