"""Gated short convolutions, which stand in for attention in LFM2. Ranks divide the channels."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, row_parallel
from pagemill.layers.state_space import state_cache
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
    width, out = x.width, f"{prefix}.out_proj"
    own = weights.shard.part(width, weights.block_elements(f"{out}.weight"))
    order = () if own.whole else own.indices

    def project(index: int) -> Tensor:
        rows = own.within(3 * width, index * width)
        return linear(weights, f"{prefix}.in_proj", x, (own.size,), bias=shape.bias, rows=rows)

    identity = ops.ActivationKind.IDENTITY
    b, c, v = project(0), project(1), project(2)
    y = ops.causal_conv(
        ops.gated_activation(b, v, identity),
        weights.small(f"{prefix}.conv.weight", (width, 1, shape.taps), row_order=order),
        weights.vector(f"{prefix}.conv.bias", width, part=own) if shape.bias else None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, own.size)),
        identity,
    )
    y = ops.gated_activation(c, y, identity)
    return row_parallel(weights, out, y, width, columns=own, bias=shape.bias)
