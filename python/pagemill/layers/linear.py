"""A linear layer: `<name>.weight` and, where there is one, `<name>.bias`."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor


def linear(
    weights: Weights, name: str, x: Tensor, row_shape: Sequence[int], *, bias: bool = False
) -> Tensor:
    """x [N, ..., in] -> [N, *row_shape]; `row_shape` is (out,) or (heads, head_dim)."""
    out = 1
    for dim in row_shape:
        out *= dim
    weight = weights.matrix(f"{name}.weight", (out, x.width))
    vector = weights.vector(f"{name}.bias", out) if bias else None
    return ops.linear(x, weight, vector, row_shape=row_shape)
