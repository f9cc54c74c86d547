"""Compares what `pagemill plan` says of a model with the memory that its executor allocates."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pagemill import _native
from pagemill.config import EngineConfig, build
from pagemill.engine.model_plan import built_model, plan_model
from pagemill.runner.simple_batch import SimpleBatch

UNPLANNED = 2**21  # bytes: arrays of a step, the program itself, a stack of a thread

_M_MMAP_THRESHOLD = -3  # glibc's malloc.h
_THRESHOLD_BYTES = 1 << 16
_STACK_BYTES = 1 << 17
_ATTRIBUTES_BYTES = 64  # of a pthread_attr_t; 56 on the machines that have most


def unplanned_bytes(path: Path, prompt: Sequence[int], **options: Any) -> int:
    """What an executor of the checkpoint in `path` has allocated, once a step has run, beyond what
    the plan says. Its largest step takes megabytes."""
    config = build(
        EngineConfig,
        {
            "model": str(path),
            "max_num_batched_tokens": 4096,
            "max_num_seqs": 4,
            "kv_cache_memory_bytes": "512MiB",
            "threads": 1,
            "pack_cache": False,
            **options,
        },
    )
    plan, planned = plan_model(config), built_model(config)
    assert plan.kv is not None, plan.refusal
    blocks = plan.kv.num_blocks
    with _counted():
        before = _private_bytes()
        run = _native.NativeExecutor(
            planned.built.program_text, planned.sizes.executor_options(config, blocks)
        )
        batch = SimpleBatch(min(blocks, 1024), run.table_block_sizes)
        run(batch.step({0: prompt}))
        allocated = _private_bytes() - before
    own = plan.packed + plan.activations + plan.workspace + plan.logits + plan.kv.kv_bytes
    return allocated - own


@contextmanager
def _counted() -> Iterator[None]:
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


def _private_bytes() -> int:
    """Writable memory that belongs to this process alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no VmData")
