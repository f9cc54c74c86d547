"""A server of several processes: each of them is killed while streams run."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import (
    SMOLLM2,
    SMOLLM2_REASON,
    ServerProcess,
    open_files,
    serve,
)

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
OPTIONS = ("--max-model-len", "2048", "--max-num-seqs", "16")
LONG = 1500  # tokens: more than a test waits for


@dataclass
class Stream:
    """A streamed completion, read by a thread of its own."""

    base_url: str
    max_tokens: int
    events: list[str] = field(default_factory=list)
    first: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    status: int = 0

    def start(self) -> Stream:
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        body = {"prompt": "Count:", "max_tokens": self.max_tokens, "ignore_eos": True}
        body |= {"stream": True, "temperature": 0}
        url = f"{self.base_url}/v1/completions"
        try:
            with httpx.stream("POST", url, json=body, timeout=60) as response:
                self.status = response.status_code
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        self.events.append(line.removeprefix("data: "))
                        self.first.set()
        except httpx.TransportError as error:
            self.events.append(f"lost: {error}")
        self.ended.set()

    @property
    def complete(self) -> bool:
        return bool(self.events) and self.events[-1] == "[DONE]" and not self.errors

    @property
    def errors(self) -> list[str]:
        return [event for event in self.events if '"error"' in event]


def child(server: ServerProcess, kind: str) -> list[int]:
    """Process ids of the server's children: "engine", or "api" for those that listen on TCP."""
    found: list[int] = []
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for pid in map(int, task.read_text().split()):
        paths = open_files(pid)
        is_engine = not any(_listens_on_tcp(path) for path in paths)
        if paths and (kind == "engine") == is_engine:  # else it has ended
            found.append(pid)
    return found


def _listens_on_tcp(path: str) -> bool:
    if not path.startswith("socket:["):
        return False
    inode = path.removeprefix("socket:[").removesuffix("]")
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[9] == inode and row[3] == "0A" for row in rows)


def wait_until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ready(server: ServerProcess) -> bool:
    try:
        return httpx.get(f"{server.base_url}/ready", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def complete(server: ServerProcess, max_tokens: int = 4) -> httpx.Response:
    body = {"prompt": "Count:", "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
    return httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("isolated")
    with serve(SMOLLM2, folder, ("--isolate-engine", *OPTIONS)) as server:
        yield server


def test_a_killed_engine_fails_its_requests_and_serves_again(isolated: ServerProcess) -> None:
    reference = complete(isolated).json()["choices"][0]["text"]
    streams = [Stream(isolated.base_url, LONG).start() for _ in range(4)]
    for stream in streams:
        assert stream.first.wait(60)
    (engine,) = child(isolated, "engine")
    os.kill(engine, signal.SIGKILL)
    for stream in streams:
        assert stream.ended.wait(60)
        (error,) = stream.errors
        assert json.loads(error)["error"]["code"] == 503
    if not ready(isolated):  # it may be back already
        response = complete(isolated)
        assert response.status_code in (200, 503)
    wait_until(lambda: ready(isolated), 60)
    assert complete(isolated).json()["choices"][0]["text"] == reference
    assert "was killed by signal 9" in isolated.log.read_text()
    assert isolated.metric("process_restarts_total", process="engine") >= 1


def test_a_stopped_engine_is_neither_stuck_for_others_nor_lost(isolated: ServerProcess) -> None:
    wait_until(lambda: ready(isolated))
    (engine,) = child(isolated, "engine")
    stream = Stream(isolated.base_url, 200).start()
    assert stream.first.wait(60)
    os.kill(engine, signal.SIGSTOP)
    try:
        # The process that speaks HTTP answers while the engine does not.
        assert httpx.get(f"{isolated.base_url}/health", timeout=60).status_code == 200
        assert httpx.get(f"{isolated.base_url}/v1/models", timeout=60).status_code == 200
    finally:
        os.kill(engine, signal.SIGCONT)
    assert stream.ended.wait(60)
    assert stream.complete


def test_a_stuck_engine_fails_its_requests_and_serves_again(tmp_path: Path) -> None:
    options = ("--isolate-engine", "--engine-stuck-timeout", "3", *OPTIONS)
    with serve(SMOLLM2, tmp_path, options) as server:
        reference = complete(server).json()["choices"][0]["text"]
        streams = [Stream(server.base_url, LONG).start() for _ in range(4)]
        for stream in streams:
            assert stream.first.wait(60)
        (engine,) = child(server, "engine")
        os.kill(engine, signal.SIGSTOP)
        for stream in streams:
            assert stream.ended.wait(60)
            (error,) = stream.errors
            assert json.loads(error)["error"]["code"] == 503
        wait_until(lambda: ready(server))
        assert complete(server).json()["choices"][0]["text"] == reference
        assert "is stuck: no progress for 3 s" in server.log.read_text()


def test_an_idle_engine_is_not_stuck(tmp_path: Path) -> None:
    with serve(
        SMOLLM2, tmp_path, ("--isolate-engine", "--engine-stuck-timeout", "3", *OPTIONS)
    ) as server:
        engine = child(server, "engine")
        time.sleep(5)
        assert child(server, "engine") == engine
        assert complete(server).status_code == 200


def test_children_end_with_the_supervisor(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, ("--isolate-engine", *OPTIONS)) as server:
        children = child(server, "engine") + child(server, "api")
        assert len(children) == 2
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in children))


def test_a_killed_api_process_takes_only_its_own_streams(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, ("--api-server-count", "2", *OPTIONS)) as server:
        wait_until(lambda: len(child(server, "api")) == 2)
        victim, _ = child(server, "api")
        streams = [Stream(server.base_url, 150).start() for _ in range(12)]
        for stream in streams:
            assert stream.first.wait(60)
        os.kill(victim, signal.SIGKILL)
        for stream in streams:
            assert stream.ended.wait(60)
        lost = [stream for stream in streams if not stream.complete]
        # Connections are dealt out by a hash of their ports: all on one side has odds of 1 to 2048.
        assert 0 < len(lost) < len(streams)
        texts = {_text(stream) for stream in streams if stream.complete}
        assert len(texts) == 1
        assert all("lost" in stream.events[-1] for stream in lost)
        wait_until(lambda: len(set(child(server, "api")) - {victim}) == 2)
        wait_until(lambda: ready(server))
        server.wait_until_idle()
        # Counts of the process that was killed are in the sum, whichever process answers.
        totals = {_requests_ok(server) for _ in range(8)}
        assert len(totals) == 1 and totals.pop() >= len(streams) - len(lost)
        assert server.stop() == 0
        assert "api 0" in server.log.read_text()


def test_a_drain_lets_every_process_finish(tmp_path: Path) -> None:
    with serve(SMOLLM2, tmp_path, ("--api-server-count", "2", *OPTIONS)) as server:
        streams = [Stream(server.base_url, 60).start() for _ in range(6)]
        for stream in streams:
            assert stream.first.wait(60)
        assert server.stop(60) == 0
        for stream in streams:
            assert stream.ended.wait(60)
            assert stream.complete


def test_an_engine_that_cannot_start_ends_the_server(tmp_path: Path) -> None:
    options = ("--isolate-engine",)
    with (
        pytest.raises(AssertionError, match="no such file"),
        serve(str(tmp_path / "missing.gguf"), tmp_path, options),
    ):
        pass


def test_the_port_is_refused_to_others(isolated: ServerProcess) -> None:
    port = int(isolated.base_url.rpartition(":")[2])
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))


def _text(stream: Stream) -> str:
    events = [json.loads(event) for event in stream.events[:-1]]
    return "".join(event["choices"][0]["text"] for event in events if event["choices"])


def _requests_ok(server: ServerProcess) -> float:
    return server.metric("request_success_total", finished_reason="length")
