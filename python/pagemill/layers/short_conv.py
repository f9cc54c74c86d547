"""Gated short convolutions, which stand in for attention in LFM2.

Every rank computes whole ones, because a rank's rows of `in_proj` would lie in three places.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.state_space import state_cache
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class ShortConv:
    """The tokens that a channel reads, and whether all three layers have biases."""

    taps: int
    bias: bool


def short_conv(weights: Weights, prefix: str, x: Tensor, shape: ShortConv, layer: int) -> Tensor:
    """x [T, H] -> out(c * conv(b * v)), [T, H], with the rows of b, c and v one after the other in
    `in_proj`; the state of layer `layer` has its own cache.

    Weights: `<prefix>.{in_proj, conv, out_proj}`.
    """
    if weights.shard.ranks > 1:
        weights.note("every rank computes whole convolutions")
    width = x.width

    def project(index: int) -> Tensor:
        rows = Part(index * width, (index + 1) * width, 3 * width)
        return linear(weights, f"{prefix}.in_proj", x, (width,), bias=shape.bias, rows=rows)

    identity = ops.ActivationKind.IDENTITY
    b, c, v = project(0), project(1), project(2)
    y = ops.causal_conv(
        ops.gated_activation(b, v, identity),
        weights.small(f"{prefix}.conv.weight", (width, 1, shape.taps)),
        weights.vector(f"{prefix}.conv.bias", width) if shape.bias else None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, width)),
        identity,
    )
    y = ops.gated_activation(c, y, identity)
    return linear(weights, f"{prefix}.out_proj", y, (width,), bias=shape.bias)
