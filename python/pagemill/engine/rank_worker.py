"""What a worker process of a tensor-parallel group does; `ranks` starts it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from pagemill import _native


def run(job: Mapping[str, Any]) -> int:
    """Joins the group, binds the program, and runs rank 0's steps; returns the exit status.

    Signals to the whole group of processes (Ctrl-C, a service manager's SIGTERM) are for rank 0,
    which may have requests to finish: the worker ends when rank 0 does.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    rank = job["rank"]
    try:
        segment = _native.SharedSegment.open(job["fd"])
        os.close(job["fd"])
        world = _native.World(segment, rank)
        options = _native.ExecutorOptions(**job["arguments"])
        executor = _native.NativeExecutor(job["program"], options, world)
        world.meet()
        _native.follow_steps(executor, world)
    except _native.StatusError as error:
        if error.code == "UNAVAILABLE":  # rank 0 has ended, and another rank has reported why
            return 0
        print(f"pagemill: rank {rank}: {error}", file=sys.stderr)
        return 1
    return 0
