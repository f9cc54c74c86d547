"""Speed of the torch executor relative to the device's limits.

Decode is bound by reading weights and caches, prefill by arithmetic: decode is given as a fraction
of the copy bandwidth, prefill as one of the matrix-multiply rate, both measured on random data.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pagemill.ops.program import Program
from pagemill.ops.program_text import from_text
from pagemill.ops.torch_step import make_step
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

from tools.gpu.work import decode_bytes, prefill_operations

BLOCK_SIZE = 16
REPEATS = 15  # timings, of which the median is used
_BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """`copy_bytes_per_s` counts bytes read and written; `matmul_flop_per_s` in bf16."""

    name: str
    copy_bytes_per_s: float
    matmul_flop_per_s: float


@dataclass(frozen=True, slots=True)
class DecodeSpeed:
    """A step of `batch` requests. `fraction` of the copy bandwidth, on necessary bytes; `graph_*`:
    the same step replayed from a captured graph, free of the host (None if there is none)."""

    batch: int
    context: int
    tokens_per_s: float
    fraction: float
    graph_tokens_per_s: float | None
    graph_fraction: float | None


@dataclass(frozen=True, slots=True)
class PrefillSpeed:
    """`fraction` of the rate of a large matrix multiply, on necessary operations."""

    tokens: int
    tokens_per_s: float
    fraction: float


@dataclass(frozen=True, slots=True)
class Speed:
    """One model's numbers, in bf16."""

    weight_bytes: int
    prefill: PrefillSpeed
    decode: list[DecodeSpeed]


def device_limits(device: str, *, size: int) -> DeviceLimits:
    """Measure copying and multiplying square matrices of `size`."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    multiplied = _seconds(lambda: a @ b, device)
    data = torch.randint(0, 255, (16 * size * size,), dtype=torch.uint8, device=device)
    copy = torch.empty_like(data)
    copied = _seconds(lambda: copy.copy_(data), device)
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return DeviceLimits(name, 2 * data.nbytes / copied, 2 * size**3 / multiplied)


def measure_speed(
    directory: Path, device: str, limits: DeviceLimits, *, context: int, batches: list[int]
) -> Speed:
    """Time a prefill of `context` tokens, and decode steps of each batch size after it."""
    built = build(ModelSource.open(directory), BuildOptions())
    program = from_text(built.program_text)
    blocks_each = -(-(context + len(batches)) // BLOCK_SIZE)
    num_blocks = max(batches) * blocks_each + 1
    options = TorchOptions(device, "bf16", "bf16", num_blocks=num_blocks, block_size=BLOCK_SIZE)
    executor = TorchExecutor(built.program_text, options)
    sequences = SimpleBatch(num_blocks, executor.table_block_sizes)
    rng = np.random.default_rng(0)
    texts = rng.integers(0, built.vocab_size, (max(batches), context)).tolist()
    first = make_step(sequences.step({0: texts[0]}), torch.device(device))
    prefill_s = _seconds(lambda: executor.run_step(first), device)
    for request, text in enumerate(texts[1:], start=1):
        executor.run(sequences.step({request: text}))
    rate = prefill_operations(program, context) / prefill_s
    prefill = PrefillSpeed(context, context / prefill_s, rate / limits.matmul_flop_per_s)
    decode: list[DecodeSpeed] = []
    for batch in batches:
        step = sequences.step({request: [1] for request in range(batch)})
        decode.append(_decode(executor, program, step, device, limits))
    return Speed(executor.weight_bytes, prefill, decode)


def _decode(
    executor: TorchExecutor,
    program: Program,
    arrays: dict[str, np.ndarray],
    device: str,
    limits: DeviceLimits,
) -> DecodeSpeed:
    batch, context = len(arrays["seq_lens"]), int(arrays["seq_lens"].max())
    step = make_step(arrays, torch.device(device))
    floor_s = decode_bytes(program, batch, context, _BF16_BYTES) / limits.copy_bytes_per_s
    # The host uploads the batch in every step, so that its time belongs in the number.
    seconds = _seconds(lambda: executor.run(arrays), device)
    if not device.startswith("cuda"):
        return DecodeSpeed(batch, context, batch / seconds, floor_s / seconds, None, None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        executor.run_step(step)
    replayed = _seconds(graph.replay, device)
    return DecodeSpeed(
        batch, context, batch / seconds, floor_s / seconds, batch / replayed, floor_s / replayed
    )


def _seconds(call: Callable[[], object], device: str) -> float:
    """Median time of a call, all of its work on the device included."""
    synchronize = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(REPEATS):
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
