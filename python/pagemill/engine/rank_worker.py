"""What a worker process of a divided model does; `ranks` starts it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from pagemill import _native
from pagemill.config import ConfigError
from pagemill.engine import rank_adapters, rank_jobs
from pagemill.engine.nodes import Nodes

_LOOK_EVERY_S = 1.0


def run(job: Mapping[str, Any]) -> int:
    """Joins the group, binds the program, and runs rank 0's steps; returns the exit status.

    Signals to the whole group of processes (Ctrl-C, a service manager's SIGTERM) are for rank 0,
    which may have requests to finish: a worker ignores them from its start (`ranks`), and ends when
    rank 0 does.
    """
    rank = job["rank"]
    answers = _take_stdout()
    try:
        arguments = dict(job["arguments"])
        world = _join(job, arguments)
        pages: _native.PageSegment | None = None
        if job["pages_fd"] is not None:
            pages = _native.PageSegment.join(job["pages_fd"], rank)
            os.close(job["pages_fd"])
        options = _native.ExecutorOptions(**arguments)
        executor = (
            _native.NativeExecutor(job["program"], options, world)
            if job["device"] is None
            else _on_device(job["device"], job["program"], options, world)
        )
        store = _native.AdapterStore() if job["arguments"].get("max_adapters") else None
        _serve_jobs(executor, store, answers)
        world.meet()
        if job["stage"] is None or isinstance(executor, _native.DeviceExecutor):
            _native.follow_steps(executor, world, store, page_segment=pages)
        else:
            _native.follow_steps(executor, world, stage=_native.Stage(**job["stage"]))
    except _native.StatusError as error:
        if error.code == "UNAVAILABLE":  # rank 0 has ended, and another rank has reported why
            return 0
        print(f"pagemill: rank {rank}: {error}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"pagemill: rank {rank}: {error}", file=sys.stderr)
        return 1
    return 0


def _join(job: Mapping[str, Any], arguments: dict[str, Any]) -> _native.World:
    """The rank's place. Among ranks of several machines it waits for all, for `arguments` to have
    the blocks that fit on all of them."""
    segment: _native.SharedSegment | None = None
    if job["fd"] is not None:
        segment = _native.SharedSegment.open(job["fd"])
        os.close(job["fd"])
    if job["nodes"] is None:
        assert segment is not None
        return _native.World(segment, job["rank"])
    parent = os.getppid()
    world = Nodes(**job["nodes"]).join(job["rank"], segment)
    while not _have_joined(world):
        if os.getppid() != parent:
            raise ConfigError("the process that started this rank has ended")
    arguments["num_blocks"] = world.number
    return world


def _have_joined(world: _native.NodesWorld) -> bool:
    try:
        world.wait_for_all(_LOOK_EVERY_S)
    except _native.StatusError as error:
        if error.code != "UNAVAILABLE":
            raise
        return False
    return True


def _take_stdout() -> IO[str]:
    """Standard output, which what libraries print does not reach any more: it goes to standard
    error. NCCL prints there, and its words would be read as answers."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _serve_jobs(
    executor: _native.NativeExecutor | _native.DeviceExecutor,
    store: _native.AdapterStore | None,
    answers: IO[str],
) -> None:
    """Starts the thread that does what rank 0 sends beside the steps, until it ends."""
    handlers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "fingerprint": lambda _: executor.kv_fingerprint()
    }
    if store is not None:
        handlers["adapter"] = lambda job: rank_adapters.add_part(executor, store, job)
    # Not sys.stdin: no thread may hold its lock when the interpreter ends.
    jobs = os.fdopen(os.dup(sys.stdin.fileno()))
    parts = (handlers, jobs, answers)
    threading.Thread(target=rank_jobs.serve, args=parts, daemon=True).start()


def _on_device(
    device: Mapping[str, Any],
    program: str,
    options: _native.ExecutorOptions,
    world: _native.World,
) -> _native.DeviceExecutor:
    from pagemill.engine.devices import open_device  # imports what other ranks do not need

    return _native.DeviceExecutor(
        open_device(f"{device['vendor']}:{device['index'] + world.rank}"),
        program,
        options,
        world,
        max_model_len=device["max_model_len"],
        vocab_size=device["vocab_size"],
        max_adapter_rank=device["max_adapter_rank"],
        offload_bytes=device["offload_bytes"],
    )
