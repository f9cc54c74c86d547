"""The memory that this process has allocated, touched or not."""

from __future__ import annotations

import ctypes
from pathlib import Path

_M_MMAP_THRESHOLD = -3  # glibc's malloc.h
_THRESHOLD_BYTES = 1 << 16


def map_large_blocks() -> None:
    """From now on large blocks are mapped one by one, rather than found in what was freed before:
    what is allocated can be counted."""
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)


def private_bytes() -> int:
    """Writable memory that belongs to this process alone, the stacks of its threads included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no VmData")
