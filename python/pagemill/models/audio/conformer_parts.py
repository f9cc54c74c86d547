"""What conformers are made of that other layers do not have."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor


def of_channels(weights: Weights, name: str, x: Tensor, out: int, *, bias: bool = True) -> Tensor:
    """x [N, C] -> [N, out], by a linear layer that is stored as a convolution of one tap."""
    matrix = weights.reshaped(f"{name}.weight", (out, x.width, 1), (out, x.width))
    return ops.linear(x, matrix, weights.vector(f"{name}.bias", out) if bias else None)


def shifted(weights: Weights, name: str, x: Tensor, stored: Sequence[int]) -> Tensor:
    """x [T, ...] with rows of C channels plus the parameter `name`, a vector of C that is `stored`
    in a shape of its own: a convolution of one tap, 1."""
    ones = weights.constant(f"one_tap.{x.width}", [[1.0]] * x.width)
    return ops.depthwise_conv(x, ones, weights.vector(name, x.width, stored=tuple(stored)))
