"""Normalization layers over the last dimension."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.checks import last_dim
from pagemill.ops.trace import Tensor


def rms_norm(
    weights: Weights, name: str, x: Tensor, eps: float, *, weight_offset: float = 0.0
) -> Tensor:
    """x [N, ..., H] normalized by its root mean square, times `<name>.weight` + offset."""
    weight = weights.vector(f"{name}.weight", last_dim("rms_norm", "x", x))
    return ops.rms_norm(x, weight, eps=eps, weight_offset=weight_offset)


def layer_norm(weights: Weights, name: str, x: Tensor, eps: float) -> Tensor:
    """x [N, H] normalized by mean and variance, with `<name>.weight` and `<name>.bias`."""
    hidden = last_dim("layer_norm", "x", x)
    weight, bias = weights.vector(f"{name}.weight", hidden), weights.vector(f"{name}.bias", hidden)
    return ops.layer_norm(x, weight, bias, eps=eps)
