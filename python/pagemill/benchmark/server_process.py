"""A `pagemill serve` process of this machine, for benchmarks that start servers of their own.

with running_server({"model": "model.gguf", "max_num_seqs": 16}) as server:
    client = ServerClient(server.url)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

from pagemill.benchmark.server_client import ServerAddress
from pagemill.engine.reserved_port import reserved_port

_SERVE = (sys.executable, "-m", "pagemill.cli", "serve")
_HOST = "127.0.0.1"
_START_S = 1800.0
_STOP_S = 30.0
_POLL_S = 0.01
_PROBE_S = 5.0
_TAIL_BYTES = 2000


class ServerError(ValueError):
    """A server did not start, or ended; the message has the last lines of its log."""


class RunningServer:
    """A server process and its children. `ready_s` is the time from its start until it was ready,
    `began` the start in seconds of `time.perf_counter`."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        """Starts the process; `wait_until_ready` waits for it.

        Raises:
          OSError: there is no such program.
        """
        self.url = f"http://{_HOST}:{port}"
        self.ready_s = 0.0
        self._log = log
        self.began = time.perf_counter()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Its process group is that of its children, and a terminal's Ctrl-C does not reach
                # it: `stop` ends it.
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Returns when the server would serve a request.

        Raises:
          ServerError: the server ended, or is not ready within half an hour.
        """
        address = ServerAddress.parse(self.url)
        deadline = time.monotonic() + _START_S
        while not _is_ready(address):
            status = self._process.poll()
            if status is not None:
                raise ServerError(self._with_log(f"the server ended with status {status}"))
            if time.monotonic() > deadline:
                raise ServerError(self._with_log(f"the server is not ready after {_START_S:g} s"))
            time.sleep(_POLL_S)

    def peak_bytes(self) -> int | None:
        """Returns the most resident memory that the processes had so far, added up; memory that
        they share counts in each. None if the system does not tell."""
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getpgid(int(folder.name)) == self._process.pid:
                    status = (folder / "status").read_text()
                    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
                    total += 1024 * int(found[1]) if found else 0
        return total or None

    def stop(self) -> None:
        """Ends the processes: by SIGTERM, and by SIGKILL if they take longer than half a minute or
        if the wait is interrupted."""
        try:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _with_log(self, what: str) -> str:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace").strip()
        return f"{what}:\n{text}" if text else what


@contextlib.contextmanager
def running_server(
    options: Mapping[str, Any], command: Sequence[str] = _SERVE
) -> Generator[RunningServer]:
    """Starts a server on a free port, waits until it is ready, and stops it afterwards.

    Stops it also at an exception, at Ctrl-C and at SIGTERM, which raises KeyboardInterrupt here.
    Only for the main thread, which has the signals.

    Args:
      options: option's name with underscores -> value, as the server's flags have them; None is
        the server's default.
      command: the program that takes these flags.

    Raises:
      ServerError: the server does not start.
    """
    with (
        reserved_port() as port,
        tempfile.TemporaryDirectory(prefix="pagemill-bench-") as folder,
        _sigterm_interrupts(),
    ):
        flags = [*as_flags(options), f"--host={_HOST}", f"--port={port}"]
        server = RunningServer([*command, *flags], port, Path(folder) / "server.log")
        try:
            server.wait_until_ready()
            server.ready_s = time.perf_counter() - server.began
            yield server
        finally:
            server.stop()


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Returns the command-line flags that stand for `options`."""
    flags: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, (list, tuple)):
            flags += [f"{flag}={item}" for item in cast(Sequence[Any], value)]
        elif value is not None:
            shown = json.dumps(value) if isinstance(value, dict) else value
            flags.append(f"{flag}={shown}")
    return flags


def _is_ready(address: ServerAddress) -> bool:
    connection = address.connection(_PROBE_S)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False  # it does not listen yet
    finally:
        connection.close()


@contextlib.contextmanager
def _sigterm_interrupts() -> Generator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
