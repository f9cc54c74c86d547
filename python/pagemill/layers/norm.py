"""Normalization layers over the last dimension."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.checks import last_dim
from pagemill.ops.trace import Tensor


def rms_norm(
    weights: Weights,
    name: str,
    x: Tensor,
    eps: float,
    *,
    weight: bool = True,
    weight_offset: float = 0.0,
    row_shape: Sequence[int] | None = None,
) -> Tensor:
    """x [N, ..., H] normalized by its root mean square, times `<name>.weight` + offset if it has a
    weight; rows of `row_shape` if it is given."""
    factor = _factor(weights, name, last_dim("rms_norm", "x", x), stored=weight)
    return ops.rms_norm(x, factor, eps=eps, weight_offset=weight_offset, row_shape=row_shape)


def layer_norm(
    weights: Weights,
    name: str,
    x: Tensor,
    eps: float,
    *,
    weight: bool = True,
    weight_offset: float = 0.0,
    bias: bool = True,
) -> Tensor:
    """x [N, ..., H] normalized by mean and variance, times `<name>.weight` + offset and plus
    `<name>.bias`, as far as the layer has them."""
    hidden = last_dim("layer_norm", "x", x)
    factor = _factor(weights, name, hidden, stored=weight)
    summand = weights.vector(f"{name}.bias", hidden) if bias else zeros(weights, hidden)
    return ops.layer_norm(x, factor, summand, eps=eps, weight_offset=weight_offset)


def zeros(weights: Weights, size: int) -> Tensor:
    """The bias [size] of a norm that has none."""
    return weights.constant(f"zeros.{size}", [0.0] * size)


def _factor(weights: Weights, name: str, size: int, *, stored: bool) -> Tensor:
    """`<name>.weight` if it is `stored`, else ones."""
    if stored:
        return weights.vector(f"{name}.weight", size)
    return weights.constant(f"ones.{size}", [1.0] * size)
