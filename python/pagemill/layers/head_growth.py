"""Queries whose heads grow with the position, each as it has learned to (Mistral Large 4)."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


def grow_heads(
    weights: Weights, name: str, q: Tensor, positions: Tensor, heads: Part | None = None
) -> Tensor:
    """q [T, heads, size], of all heads or of this part of them, times scale ln(1 + position) + bias
    of each head; positions i32 [T].

    Weights: `<name>.{scale,bias}`.
    """
    size = int(q.shape[-1])
    heads = heads or Part(0, q.width // size, q.width // size)
    order = [head for head in heads.indices for _ in range(size)]

    def times(which: str) -> Tensor:
        factors = weights.small(f"{name}.{which}", (heads.total,), row_order=order)
        return ops.scale_columns(q, factors)

    slope = times("scale")
    grown = ops.scale_by_position(slope, positions, growth=1.0, context=1)  # and 1 of the slope
    return ops.add(ops.add(grown, ops.scale(slope, -1.0)), times("bias"))
