"""The minimum work of a step of a program: operations, and bytes to read."""

from __future__ import annotations

import math

from pagemill.ops.program import Program, QuantizedEntry, WeightEntry


def _matrices(program: Program) -> list[WeightEntry | QuantizedEntry]:
    return [*program.weights, *program.quantized]


def _windows(program: Program) -> dict[str, int]:
    """The tokens that a query of each cache attends to, 0 = all."""
    groups = {group.name: group.window for group in program.groups}
    return {cache.name: groups[cache.group] for cache in program.caches}


def prefill_operations(program: Program, tokens: int) -> int:
    """Multiplications and additions of a prompt of `tokens` with logits of its last token."""
    weights = {weight.name: math.prod(weight.shape) for weight in _matrices(program)}
    values = {value.name: value.shape for value in program.values}
    windows = _windows(program)
    total = 0
    for op in program.ops:
        if op.op == "linear":
            rows = 1 if values[op.outputs[0]][0] == "logits_rows" else tokens
            total += 2 * rows * weights[str(op.inputs[1])]
        elif op.op == "paged_attention":
            _, heads, head_dim = values[op.outputs[0]]
            window = min(windows[str(op.inputs[1])] or tokens, tokens)
            # A query sees half of the window before there are that many tokens, all of it after.
            pairs = window * window // 2 + (tokens - window) * window
            total += 4 * int(heads) * int(head_dim) * pairs
    return total


def decode_bytes(program: Program, batch: int, context: int, value_bytes: int) -> int:
    """Bytes of weights, keys and values that `batch` requests of `context` tokens have to read.

    `value_bytes`: of a weight and of a cached number.
    """
    weights = {weight.name: math.prod(weight.shape) for weight in _matrices(program)}
    windows = _windows(program)
    read = {str(op.inputs[1]) for op in program.ops if op.op == "linear"}
    cached = sum(
        2 * math.prod(cache.dims) * min(windows[cache.name] or context, context)
        for cache in program.caches
    )
    return value_bytes * (sum(weights[name] for name in read) + batch * cached)
