"""Processes of one server. The parent starts them and tells them what to do through their standard
input, which also ties them to it: at its end, a child exits at once, however the parent ended.

    process = await start_child("package.module", job, variables)  # in the parent, or in two parts:
    process = await prepare_child("package.module", variables)
    await begin(process, job)
    await wait_ready(process)
    await wait_silent(process, timeout_s)
    tell(process, message)
    message = await next_report(process)
    ask_to_stop(process)

    follow_parent(stop, receive)                                                 # in the child
    report_ready()
    report_progress()
    report(message)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pagemill.config.env import child_environment

# The child imports what this process would, wherever it found that.
_BOOT = (
    "import importlib, json, signal, sys\n"
    # Those to the whole group are for the parent; see `follow_parent`.
    "for name in ('SIGINT', 'SIGTERM', 'SIGHUP'):\n"
    "    signal.signal(signal.Signals[name], signal.SIG_IGN)\n"
    # Unbuffered: what follows these lines is for `follow_parent`. No line: the parent has ended.
    "lines = open(0, 'rb', buffering=0, closefd=False)\n"
    "what = json.loads(lines.readline() or sys.exit())\n"
    "sys.path[:] = what['path']\n"
    "module = importlib.import_module(what['module'])\n"
    "sys.exit(module.run(json.loads(lines.readline() or sys.exit())))\n"
)
_STOP = b"\n"
_READY = b"ready\n"
_PROGRESS = b"progress\n"
_REPORT = b"report "
_MAX_LINE_BYTES = 2**20  # of what a child writes


async def start_child(
    module: str,
    job: Mapping[str, Any],
    variables: Mapping[str, str],
    descriptors: Collection[int] = (),
) -> Process:
    """Starts a process that runs `module.run(job)`, with `variables` in its environment, and has
    `descriptors` of this one. Secrets may be in the job: it is not shown in the list of
    processes."""
    process = await prepare_child(module, variables, descriptors)
    await begin(process, job)
    return process


async def prepare_child(
    module: str, variables: Mapping[str, str], descriptors: Collection[int] = ()
) -> Process:
    """Starts a process that imports `module`, with `variables` in its environment, and waits for
    `begin`; see `start_child`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _BOOT),
        stdin=PIPE,
        stdout=PIPE,
        limit=_MAX_LINE_BYTES,
        env=child_environment(variables),
        pass_fds=descriptors,
    )
    await _send(process, {"module": module, "path": sys.path})
    return process


async def begin(process: Process, job: Mapping[str, Any]) -> None:
    """A process of `prepare_child` runs `module.run(job)`. To be called once."""
    await _send(process, job)


async def _send(process: Process, message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it has ended, which the caller learns from wait()
        process.stdin.write(json.dumps(message).encode() + b"\n")
        await process.stdin.drain()


def ask_to_stop(process: Process) -> None:
    """Calls the child's `stop` function; it may be called several times."""
    _write(process, _STOP)


def tell(process: Process, message: Any) -> None:
    """Calls the child's `receive` function with `message`, which JSON can express and which may
    hold secrets."""
    _write(process, json.dumps(message).encode() + b"\n")


def _write(process: Process, line: bytes) -> None:
    assert process.stdin is not None
    if not process.stdin.is_closing():
        process.stdin.write(line)


def report_ready() -> None:
    """In the child: `wait_ready` of the parent returns."""
    os.write(sys.stdout.fileno(), _READY)
    os.set_blocking(sys.stdout.fileno(), False)


def report_progress() -> None:
    """In the child, after `report_ready`: `wait_silent` of the parent goes on waiting. Does nothing
    while the parent does not read."""
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), _PROGRESS)


def report(message: Any) -> None:
    """In the child: `next_report` of the parent returns `message`, which JSON can express."""
    line = _REPORT + json.dumps(message).encode() + b"\n"
    os.write(sys.stdout.fileno(), b"\n" + line)  # what else was written may lack its end


async def next_report(process: Process) -> Any:
    """Returns what the child reports next, or None when it has ended. Other lines that it writes
    are skipped."""
    assert process.stdout is not None
    with contextlib.suppress(ValueError):  # a line is too long: nothing that follows is understood
        while line := await process.stdout.readline():
            if line.startswith(_REPORT):
                return json.loads(line.removeprefix(_REPORT))
    return None


async def wait_ready(process: Process) -> bool:
    """Returns when the child has called `report_ready`; False if it ends before."""
    assert process.stdout is not None
    return await process.stdout.readline() == _READY


async def wait_silent(process: Process, timeout_s: float) -> bool:
    """Returns True when the child has not called `report_progress` for `timeout_s`; False when it
    has ended."""
    assert process.stdout is not None
    try:
        while await asyncio.wait_for(process.stdout.read(4096), timeout_s):
            pass
    except TimeoutError:
        return True
    return False


def follow_parent(stop: Callable[[], None], receive: Callable[[Any], None] | None = None) -> None:
    """In the child's event loop: `stop` is called when the parent requests it, `receive` with what
    it tells, and the process exits when the parent has ended, even if the loop is stuck. Signals to
    the whole group of processes (Ctrl-C, a service manager's SIGTERM) are for the parent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    loop = asyncio.get_running_loop()

    def follow() -> None:
        unread = b""
        while part := os.read(0, 1 << 16):
            *lines, unread = (unread + part).split(b"\n")
            for line in lines:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    if not line:
                        loop.call_soon_threadsafe(stop)
                    elif receive is not None:
                        loop.call_soon_threadsafe(receive, json.loads(line))
        os._exit(0)

    threading.Thread(target=follow, name="follow-parent", daemon=True).start()
