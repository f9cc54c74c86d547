"""A peer's running process: start, pause, resume, requests and stop."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pagemill.benchmark.load_generator import Load, RequestTimes, generate_load
from pagemill.benchmark.prompts import Request
from pagemill.benchmark.routes import SentFields
from pagemill.benchmark.server_client import ServerClient

from tools.bench.compare.environment import PeerError, tail
from tools.bench.compare.peers.base import Command

Prompts = list[list[int]]

_START_S = 600.0
_RUN_S = 1200.0
_STOP_S = 20.0
_POLL_S = 0.02


def free_port() -> int:
    """Returns a free port of 127.0.0.1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class PeerProcess:
    """One process and its children. Paused between its turns, so that it does not slow the others.

    `ready_s` is the time from its start until it could take requests.
    """

    def __init__(self, command: Command, log: Path) -> None:
        """Starts it, and waits until it is ready.

        Raises:
          PeerError: it ends, or is not ready within ten minutes.
        """
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        with log.open("w") as output:
            try:
                self._process = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.PIPE,
                    stdout=self._output(output.fileno()),
                    stderr=output,
                    # Unbuffered, so that the log is complete when a peer is stopped.
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **command.environment},
                    start_new_session=True,  # its process group is that of its children
                    text=True,
                )
            except OSError as error:
                raise PeerError(str(error)) from None
        try:
            with self._deadline(_START_S):
                self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - begin

    def _output(self, log: int) -> int:
        return log

    def _wait_until_ready(self) -> None:
        raise NotImplementedError

    def run(
        self, prompts: list[list[int]], output_len: int, concurrency: int
    ) -> list[RequestTimes]:
        """Runs a workload's requests.

        Raises:
          PeerError: one failed.
        """
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The process id of the parent."""
        return self._process.pid

    def pause(self) -> None:
        """Stops the processes until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues the processes."""
        self._signal(signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Memory of the group's processes, with shared memory counted once."""
        total = 0
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if os.getpgid(int(folder.name)) == self.pid:
                    rollup = (folder / "smaps_rollup").read_text()
                    total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        return total

    def stop(self) -> None:
        """Ends the processes."""
        for number in (signal.SIGCONT, signal.SIGTERM):
            self._signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    @contextlib.contextmanager
    def _deadline(self, seconds: float) -> Iterator[None]:
        """Kills a process that takes longer; waiting calls then fail."""
        timer = threading.Timer(seconds, self._signal, [signal.SIGKILL])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _failure(self, what: str) -> PeerError:
        return PeerError(f"{what}; {self._log} ends with\n{tail(self._log)}")


class ServerProcess(PeerProcess):
    """A server with /v1/completions."""

    def __init__(self, command: Command, log: Path, port: int) -> None:
        """Starts it on 127.0.0.1. Raises PeerError as `PeerProcess`."""
        self._port = port
        self._ready_path = command.ready_path
        super().__init__(command, log)
        self._client = ServerClient(f"http://127.0.0.1:{port}", timeout_s=_RUN_S)
        self._model = self._client.first_model()

    def _wait_until_ready(self) -> None:
        while self._status() != 200:
            if self._process.poll() is not None:
                raise self._failure("the server ended")
            time.sleep(_POLL_S)

    def _status(self) -> int:
        """0 while no process listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", self._ready_path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def run(
        self, prompts: list[list[int]], output_len: int, concurrency: int
    ) -> list[RequestTimes]:
        """Each request on its own connection, streaming."""
        requests = [Request(prompt, output_len) for prompt in prompts]
        fields = SentFields(self._model, temperature=0, ignore_eos=True)
        load = Load(requests, fields, float("inf"), concurrency, seed=0)
        with self._deadline(_RUN_S):
            times = asyncio.run(generate_load(self._client, load))
        for failed in (each for each in times if not each.ok):
            raise self._failure(f"a request failed: {failed.error}")
        return times


class DriverProcess(PeerProcess):
    """A program of drivers/."""

    def _output(self, log: int) -> int:
        return subprocess.PIPE

    def _wait_until_ready(self) -> None:
        self._answer()

    def run(
        self, prompts: list[list[int]], output_len: int, concurrency: int
    ) -> list[RequestTimes]:
        """All requests in one call: `concurrency` is theirs."""
        assert self._process.stdin
        with self._deadline(_RUN_S):
            try:
                job = {"prompts": prompts, "output_len": output_len}
                self._process.stdin.write(json.dumps(job) + "\n")
                self._process.stdin.flush()
            except OSError:
                raise self._failure("the driver ended") from None
            tokens: list[list[float]] = self._answer()["tokens"]
        return [_times(of_prompt) for of_prompt in tokens]

    def _answer(self) -> dict[str, list[list[float]]]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise self._failure("the driver ended")
        return json.loads(line)


def _times(tokens: list[float]) -> RequestTimes:
    """Times with the request sent at zero."""
    gaps = [after - before for before, after in zip(tokens, tokens[1:], strict=False)]
    return RequestTimes(first=tokens[0], last=tokens[-1], gaps=gaps, output_tokens=len(tokens))
