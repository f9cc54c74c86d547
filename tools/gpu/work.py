"""The minimum work of a step of a program: operations, and bytes to read."""

from __future__ import annotations

import math

from pagemill.ops.program import (
    CacheEntry,
    OpEntry,
    Program,
    QuantizedEntry,
    StackEntry,
    WeightEntry,
)
from pagemill.tensor.dtypes import tensor_bytes

_KV_BYTES = 2  # of a cached number: bf16


def _matrices(program: Program) -> list[WeightEntry | QuantizedEntry | StackEntry]:
    return [*program.weights, *program.quantized, *program.stacks]


def _windows(program: Program) -> dict[str, int]:
    """The tokens that a query of each cache attends to, 0 = all."""
    groups = {group.name: group.window for group in program.groups}
    return {cache.name: groups[cache.group] for cache in program.caches}


# The inputs of products before their matrices, each of which is followed by its bias or by none.
_BEFORE_MATRICES = {"linear": 1, "head_linear": 1, "grouped_linear": 2}


def _of_products(program: Program, op_name: str) -> set[str]:
    """The matrices of all products of a kind, or the stacks of those of experts."""
    of_kind = (op for op in program.ops if op.op == op_name)
    return {name for op in of_kind for name in _of_product(op)}


def _of_product(op: OpEntry) -> list[str]:
    return [str(name) for name in op.inputs[_BEFORE_MATRICES[op.op] :: 2]]


def _choices(program: Program) -> int:
    """Experts that a token has, in each layer with experts."""
    values = {value.name: value.shape for value in program.values}
    return next(
        int(values[str(op.inputs[1])][1]) for op in program.ops if op.op == "grouped_linear"
    )


def prefill_operations(program: Program, tokens: int) -> int:
    """Multiplications and additions of a prompt of `tokens` with logits of its last token."""
    weights = {weight.name: math.prod(weight.shape) for weight in _matrices(program)}
    experts = {weight.name: weight.shape[0] for weight in _matrices(program)}
    values = {value.name: value.shape for value in program.values}
    windows = _windows(program)
    total = 0
    for op in program.ops:
        if op.op in {"linear", "head_linear"}:
            rows = 1 if values[op.outputs[0]][0] == "logits_rows" else tokens
            total += 2 * rows * sum(weights[name] for name in _of_product(op))
        elif op.op == "grouped_linear":
            stacks = sum(weights[name] // experts[name] for name in _of_product(op))
            total += 2 * tokens * int(values[str(op.inputs[1])][1]) * stacks
        elif op.op == "paged_attention":
            _, heads, head_dim = values[op.outputs[0]]
            window = min(windows[str(op.inputs[1])] or tokens, tokens)
            # A query sees half of the window before there are that many tokens, all of it after.
            pairs = window * window // 2 + (tokens - window) * window
            total += 4 * int(heads) * int(head_dim) * pairs
        elif op.op == "latent_attention":
            # Scores of latents and of rotated parts, and a sum of latents.
            _, heads, latent = values[op.outputs[0]]
            rotated = int(values[str(op.inputs[1])][2])
            pairs = tokens * tokens // 2
            total += 2 * int(heads) * (2 * int(latent) + rotated) * pairs
    return total


def weight_bytes(program: Program) -> int:
    """Bytes of the matrices of all products: not of the table of embeddings, and no scales."""
    sizes = _bytes(program)
    return sum(sizes[name] for kind in _BEFORE_MATRICES for name in _of_products(program, kind))


def _bytes(program: Program) -> dict[str, int]:
    return {entry.name: tensor_bytes(entry.dtype, entry.shape) for entry in _matrices(program)}


def _expert_share(program: Program, batch: int) -> float:
    """The share of experts that tokens of `batch` requests have, if each has any with the same
    probability."""
    stacks = _of_products(program, "grouped_linear")
    if not stacks:
        return 0
    experts = next(entry.shape[0] for entry in _matrices(program) if entry.name in stacks)
    return 1 - (1 - _choices(program) / experts) ** batch


def _cached_elements(cache: CacheEntry) -> float:
    """Elements of a token: keys and values, or a row that is both."""
    if cache.layout == "latent":
        return cache.dims[0] / cache.tokens_of_row
    return 2 * math.prod(cache.dims)


def decode_bytes(program: Program, batch: int, context: int) -> int:
    """Bytes of weights, keys and values, in bf16, that `batch` requests of `context` tokens have to
    read, and of states that they read and write; of experts those that are expected."""
    windows = _windows(program)
    cached = sum(
        _cached_elements(cache) * min(windows[cache.name] or context, context)
        for cache in program.caches
        if cache.layout != "state"
    )
    states = sum(
        2 * tensor_bytes(cache.dtype, cache.dims)
        for cache in program.caches
        if cache.layout == "state"
    )
    sizes = _bytes(program)
    weights = sum(
        sizes[name] for kind in ("linear", "head_linear") for name in _of_products(program, kind)
    )
    stacks = sum(sizes[name] for name in _of_products(program, "grouped_linear"))
    read = weights + round(_expert_share(program, batch) * stacks)
    return read + batch * (round(_KV_BYTES * cached) + states)
