"""The memory that this process has allocated, touched or not."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_M_MMAP_THRESHOLD = -3  # glibc's malloc.h
_THRESHOLD_BYTES = 1 << 16
_STACK_BYTES = 1 << 17
_ATTRIBUTES_BYTES = 64  # of a pthread_attr_t; 56 on the machines that have most


@contextmanager
def counted() -> Iterator[None]:
    """Meanwhile large blocks are mapped one by one, rather than found in what was freed before, and
    stacks of new threads are small: what is allocated can be counted."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    before, small = (ctypes.create_string_buffer(_ATTRIBUTES_BYTES) for _ in range(2))
    libc.pthread_getattr_default_np(before)
    libc.pthread_attr_init(small)
    libc.pthread_attr_setstacksize(small, ctypes.c_size_t(_STACK_BYTES))
    libc.pthread_setattr_default_np(small)
    try:
        yield
    finally:
        libc.pthread_setattr_default_np(before)


def private_bytes() -> int:
    """Writable memory that belongs to this process alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no VmData")
