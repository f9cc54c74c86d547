"""The minimum work of a step of a program: operations, and bytes to read."""

from __future__ import annotations

import math

from pagemill.ops.dtypes import tensor_bytes
from pagemill.ops.program import OpEntry, Program, QuantizedEntry, StackEntry, WeightEntry

_KV_BYTES = 2  # of a cached number: bf16


def _matrices(program: Program) -> list[WeightEntry | QuantizedEntry | StackEntry]:
    return [*program.weights, *program.quantized, *program.stacks]


def _windows(program: Program) -> dict[str, int]:
    """The tokens that a query of each cache attends to, 0 = all."""
    groups = {group.name: group.window for group in program.groups}
    return {cache.name: groups[cache.group] for cache in program.caches}


def _of_product(op: OpEntry) -> list[str]:
    """The matrices of a `linear`, each of which is followed by its bias or by none."""
    return [str(name) for name in op.inputs[1::2]]


def prefill_operations(program: Program, tokens: int) -> int:
    """Multiplications and additions of a prompt of `tokens` with logits of its last token."""
    weights = {weight.name: math.prod(weight.shape) for weight in _matrices(program)}
    values = {value.name: value.shape for value in program.values}
    windows = _windows(program)
    total = 0
    for op in program.ops:
        if op.op == "linear":
            rows = 1 if values[op.outputs[0]][0] == "logits_rows" else tokens
            total += 2 * rows * sum(weights[name] for name in _of_product(op))
        elif op.op == "paged_attention":
            _, heads, head_dim = values[op.outputs[0]]
            window = min(windows[str(op.inputs[1])] or tokens, tokens)
            # A query sees half of the window before there are that many tokens, all of it after.
            pairs = window * window // 2 + (tokens - window) * window
            total += 4 * int(heads) * int(head_dim) * pairs
    return total


def weight_bytes(program: Program) -> int:
    """Bytes of the matrices that every step reads: not the table of embeddings, and no scales."""
    sizes = {entry.name: tensor_bytes(entry.dtype, entry.shape) for entry in _matrices(program)}
    read = {name for op in program.ops if op.op == "linear" for name in _of_product(op)}
    return sum(sizes[name] for name in read)


def decode_bytes(program: Program, batch: int, context: int) -> int:
    """Bytes of weights, keys and values, in bf16, that `batch` requests of `context` tokens have to
    read."""
    windows = _windows(program)
    cached = sum(
        2 * math.prod(cache.dims) * min(windows[cache.name] or context, context)
        for cache in program.caches
    )
    return weight_bytes(program) + _KV_BYTES * batch * cached
