"""The executors of the parity tests, behind one interface."""

from __future__ import annotations

import os
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.inputs.task import Task
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource


class Run(Protocol):
    """An executor: a batch in, the program's outputs by name."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, npt.NDArray[np.float32]]: ...

    @property
    def table_block_sizes(self) -> list[int]: ...


# "torch" runs the program as traced, "torch-rewritten" after the native rewriter, "native" in C++
# with the kernels that the machine chooses, "native-reference" with the plain ones.
EXECUTORS = ("torch", "torch-rewritten", "native", "native-reference")

# Bazel runs a test per core. OpenMP threads spin while they wait for a core that another test uses:
# greedy_tiny_test took 52 s of processor time for a model with two threads, and 15 s with one.
torch.set_num_threads(1)

NUM_BLOCKS, BLOCK_SIZE, MAX_TOKENS, MAX_SEQS = 256, 16, 2304, 64


def require_native() -> None:
    """Skip where the extension was not built; under Bazel it always is."""
    if "TEST_SRCDIR" not in os.environ:
        pytest.importorskip("pagemill._native", exc_type=ImportError)


def make_executor(
    kind: str,
    source: ModelSource,
    *,
    task: Task | None = None,
    pooling: str | None = None,
    normalize: bool = True,
    hidden_states: tuple[int, ...] = (),
    experts: tuple[int, ...] = (),
    num_blocks: int = NUM_BLOCKS,
    max_num_tokens: int = MAX_TOKENS,
    num_threads: int = 2,
    kv_cache_dtype: Literal["bf16", "f32", "fp8", "int4", "int8", "k8v4"] = "f32",
    activation_dtype: Literal["f32", "bf16", "int8"] = "f32",
    activation_type: Literal["f32", "bf16", "f16"] = "f32",
) -> Run:
    """An executor of the model of `source`; by default it rounds no f32 values."""
    if kind != "torch":
        require_native()
    options = BuildOptions(
        task=task,
        pooling=pooling,
        normalize=normalize,
        rewrite=kind != "torch",
        hidden_states=hidden_states,
        experts=experts,
    )
    text = build(source, options).program_text
    if kind.startswith("torch"):
        torch_options = TorchOptions(
            dtype=activation_type,
            kv_cache_dtype=kv_cache_dtype,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
        )
        return TorchExecutor(text, torch_options)
    from pagemill import _native

    return _native.NativeExecutor(
        text,
        _native.ExecutorOptions(
            num_threads=num_threads,
            max_num_tokens=max_num_tokens,
            max_num_seqs=min(MAX_SEQS, max_num_tokens),
            max_num_logits_rows=max_num_tokens,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            kv_cache_dtype=kv_cache_dtype,
            kernel_filter="reference" if kind == "native-reference" else "",
            activation_dtype=activation_dtype,
            activation_type=activation_type,
        ),
    )


def new_batches(run: Run, num_blocks: int = NUM_BLOCKS) -> SimpleBatch:
    """Batches for an executor of `make_executor` with as many blocks."""
    return SimpleBatch(num_blocks, run.table_block_sizes)
