"""Starts the real server in a process of its own and stops it again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from pagemill.engine.reserved_port import reserved_port

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
# The directory of the file that the variable names, or the directory itself.
MINILM = os.environ.get("PAGEMILL_TEST_MINILM_DIR", "")
SMOLLM2_REASON = "PAGEMILL_TEST_SMOLLM2_GGUF does not name the model file"
MINILM_REASON = "PAGEMILL_TEST_MINILM_DIR does not name the model's directory"
NAME = "test-model"

# Prints the imported modules when the process exits.
_WITH_MODULES = (
    "import atexit, sys;"
    "atexit.register(lambda: print('modules:', *sorted(sys.modules)));"
    "from pagemill.cli.program import run;"
    "sys.exit(run(sys.argv[1:]))"
)


def minilm_directory() -> str:
    """The embedding model's directory; "" if there is none."""
    path = Path(MINILM)
    return str(path.parent if MINILM and path.is_file() else path) if MINILM else ""


@dataclass(frozen=True)
class ServerProcess:
    """A running server."""

    process: subprocess.Popen[str]
    base_url: str
    log: Path
    seconds_to_ready: float

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics; it must exist exactly once."""
        text = httpx.get(f"{self.base_url}/metrics", timeout=60).text
        values = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(f"pagemill:{name}{{")
            and all(f'{key}="{value}"' in line for key, value in labels.items())
        ]
        assert len(values) == 1, f"{name} {labels}: {values}"
        return values[0]

    def wait_until_idle(self, timeout_s: float = 60) -> None:
        """Returns when no request runs or waits and no block is in use; fails after `timeout_s`."""
        names = ("num_requests_running", "num_requests_waiting", "kv_blocks_used")
        deadline = time.monotonic() + timeout_s
        while True:
            values = {name: self.metric(name) for name in names}
            if not any(values.values()):
                return
            assert time.monotonic() < deadline, values
            time.sleep(0.05)

    def stop(self, timeout_s: float = 60) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def open_files(pid: int) -> set[str]:
    """What the descriptors of a process stand for; nothing if it has ended."""
    found: set[str] = set()
    with contextlib.suppress(OSError):  # it has ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it has just been closed
                found.add(os.readlink(descriptor))
    return found


@contextlib.contextmanager
def serve(
    model: str,
    folder: Path,
    options: Sequence[str] = (),
    *,
    report_modules: bool = False,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
) -> Iterator[ServerProcess]:
    """Runs `pagemill serve model`, waits until it is ready, and kills it afterwards if necessary.
    The port stays reserved until then.

    Args:
        model: the model to serve.
        folder: the folder of the log.
        options: further command-line arguments.
        report_modules: the log ends with the modules that were imported.
        environment: further environment variables.
        port: the port to listen on, which the caller has reserved; 0 = any.
    """
    launcher = ["-c", _WITH_MODULES] if report_modules else ["-m", "pagemill.cli"]
    command = [*launcher, "serve", model, "--served-model-name", NAME, *options]
    with _running(command, folder / "server.log", port, environment) as server:
        yield server


@contextlib.contextmanager
def route(
    servers: Sequence[str], folder: Path, options: Sequence[str] = ()
) -> Iterator[ServerProcess]:
    """Runs `pagemill route` before the servers with these URLs, one of which must be ready."""
    command = ["-m", "pagemill.cli", "route", *options]
    command += [f"--server={server}" for server in servers]
    with _running(command, folder / "router.log") as router:
        yield router


@contextlib.contextmanager
def serve_models(
    models: Mapping[str, object], folder: Path, options: Sequence[str] = ()
) -> Iterator[ServerProcess]:
    """Runs `pagemill serve-models` with these entries of its file."""
    file = folder / "models.yaml"
    file.write_text(json.dumps(models))  # which is YAML, too
    command = ["-m", "pagemill.cli", "serve-models", str(file), *options]
    with _running(command, folder / "models.log") as server:
        yield server


@contextlib.contextmanager
def _running(
    command: Sequence[str],
    log: Path,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    if not port:
        with reserved_port() as port, _running(command, log, port, environment) as server:
            yield server
        return
    command = [sys.executable, *command, "--port", str(port)]
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        base_url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base_url, timeout=60) as client:
            wait_until_ready(process, client, log)
        yield ServerProcess(process, base_url, log, time.monotonic() - began)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen[str], client: httpx.Client, log: Path) -> None:
    """Waits until the front end that `client` reaches is ready; each has a start of its own."""
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, f"the server exited:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"never ready:\n{log.read_text()}"
        with contextlib.suppress(httpx.TransportError):
            if client.get("/ready").status_code == 200:
                return
        time.sleep(0.01)
