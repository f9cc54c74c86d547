"""Compares the logits of the torch executor on this device with a reference, for models of real
shapes.

The reference is `transformers` in f32 on the same device, or, if it is not installed, the torch
executor in f32 on the CPU. An error is the norm of the difference over the norm of the reference.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import Batch, TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

Logits = npt.NDArray[np.float32]
Run = Callable[[Batch], tuple[Logits | None, Logits | None]]

# Sums in another order: 1e-7 an operation, some 1e-6 after tens of layers; a factor of 20 on that.
# An order of magnitude below what tf32 would give, which must not be on.
F32_BOUND = 5e-5

# bf16 has 8 bits, so the result depends on where values are rounded. The bound is the error of
# `transformers` in bf16 on the same weights, plus half: a different but no worse place to round.
BF16_FACTOR = 1.5
# Without that measure: a relative error of 2^-8 each in some 10^2 roundings that add up like a
# random walk.
BF16_BOUND = 0.06

NUM_BLOCKS, BLOCK_SIZE = 64, 16
LENGTHS = (300, 41)
STEPS = ((200, 40), (99, 0), (1, 1))  # tokens that each request runs in each step


@dataclass(frozen=True, slots=True)
class ParityResult:
    """`reference` names what was compared with; errors are relative; `passed` is the verdict."""

    reference: str
    f32_error: float
    bf16_error: float
    bf16_bound: float
    native_error: float | None
    passed: bool


def check_parity(directory: Path, device: str, *, native: bool) -> ParityResult:
    """Compare logits of all tokens of two prompts, run in chunks and decoded in one batch.

    `native` adds the native executor, which computes in f32 on the CPU.
    """
    source = ModelSource.open(directory)
    built = build(source, BuildOptions())
    prompts = _prompts(built.vocab_size)
    name, expected, measure = _expected(directory, device, built, prompts)
    f32_error = _error(_run_torch(built, device, "f32", prompts), expected)
    bf16_error = _error(_run_torch(built, device, "bf16", prompts), expected)
    bf16_bound = BF16_BOUND if measure is None else BF16_FACTOR * measure
    native_error = _error(_logits(_native(built), prompts), expected) if native else None
    passed = f32_error <= F32_BOUND and bf16_error <= bf16_bound
    passed = passed and (native_error is None or native_error <= F32_BOUND)
    return ParityResult(name, f32_error, bf16_error, bf16_bound, native_error, passed)


def _prompts(vocab_size: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocab_size, length).tolist() for length in LENGTHS]


def _error(actual: Logits, expected: Logits) -> float:
    # NaN compares as false with every bound, so that it fails.
    difference = np.linalg.norm(actual.astype(np.float64) - expected)
    return float(difference / np.linalg.norm(expected.astype(np.float64)))


def _logits(run: Run, prompts: list[list[int]]) -> Logits:
    """Logits of every token of each prompt, prompt after prompt."""
    batches = SimpleBatch(NUM_BLOCKS, run.table_block_sizes)
    rows: list[list[Logits]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    for counts in STEPS:
        step = {
            request: prompts[request][done[request] : done[request] + count]
            for request, count in enumerate(counts)
            if count
        }
        logits = run(batches.step(step, all_logits=True))["logits"]
        at = 0
        for request, tokens in step.items():
            rows[request].append(logits[at : at + len(tokens)])
            at += len(tokens)
            done[request] += len(tokens)
    return np.concatenate([part for parts in rows for part in parts])


def _run_torch(built: BuiltModel, device: str, dtype: str, prompts: list[list[int]]) -> Logits:
    options = TorchOptions(device, dtype, dtype, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    return _logits(TorchExecutor(built.program_text, options), prompts)


def _native(built: BuiltModel) -> Run:
    from pagemill import _native

    options = _native.ExecutorOptions(
        max_num_tokens=512,
        max_num_seqs=4,
        max_num_logits_rows=512,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        kv_cache_dtype="f32",
        activation_dtype="f32",
    )
    return _native.NativeExecutor(built.program_text, options)


def _expected(
    directory: Path, device: str, built: BuiltModel, prompts: list[list[int]]
) -> tuple[str, Logits, float | None]:
    """The reference's name, its f32 logits, and its own error in bf16, if known."""
    if importlib.util.find_spec("transformers") is None:
        return "torch executor, f32, CPU", _run_torch(built, "cpu", "f32", prompts), None
    exact = _transformers(directory, device, torch.float32, prompts)
    measure = _error(_transformers(directory, device, torch.bfloat16, prompts), exact)
    return "transformers, f32", exact, measure


@torch.inference_mode()
def _transformers(
    directory: Path, device: str, dtype: torch.dtype, prompts: list[list[int]]
) -> Logits:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).to(device).eval()
    rows = [model(torch.tensor([prompt], device=device)).logits[0].float() for prompt in prompts]
    return torch.cat(rows).cpu().numpy()
