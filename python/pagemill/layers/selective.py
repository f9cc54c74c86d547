"""The mixer of Mamba, in which every element of a channel's state decays by itself. Ranks divide
the channels."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, row_parallel
from pagemill.layers.state_space import state_cache
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class StepNorms:
    """Norms of what dt is made of, of B and of C: with weights, or without."""

    eps: float
    weights: bool


@dataclass(frozen=True, slots=True)
class SelectiveShape:
    """`channels` with `states` each; dt is made of `rank` features. The convolution in front has
    `taps`. in_proj and out_proj have biases if `bias`."""

    channels: int
    states: int
    rank: int
    taps: int
    bias: bool
    conv_bias: bool
    norms: StepNorms | None = None


def selective_mixer(
    weights: Weights, prefix: str, x: Tensor, shape: SelectiveShape, layer: int
) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{in_proj, conv1d, x_proj, dt_proj, A_log, D, out_proj}`, and `<prefix>.{dt,
    b,c}_layernorm` if there are norms with weights. in_proj yields the input of the convolution and
    the gate.
    """
    channels, out = shape.channels, f"{prefix}.out_proj"
    blocks = (weights.block_elements(f"{prefix}.{name}.weight") for name in ("x_proj", "out_proj"))
    own = weights.shard.part(channels, max(blocks))
    order = () if own.whole else own.indices

    def project(index: int) -> Tensor:
        rows = own.within(2 * channels, index * channels)
        return linear(weights, f"{prefix}.in_proj", x, (own.size,), bias=shape.bias, rows=rows)

    def vector(name: str) -> Tensor:
        return weights.vector(f"{prefix}.{name}", channels, part=own)

    inner, gate = project(0), project(1)
    inner = ops.causal_conv(
        inner,
        weights.small(f"{prefix}.conv1d.weight", (channels, 1, shape.taps), row_order=order),
        vector("conv1d.bias") if shape.conv_bias else None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, own.size)),
    )
    low, b, c = _steps(weights, prefix, inner, shape, own)
    y = ops.selective_scan(
        inner,
        linear(weights, f"{prefix}.dt_proj", low, (own.size,), rows=own),
        b,
        c,
        weights.small(f"{prefix}.A_log", (channels, shape.states), row_order=order),
        vector("D"),
        vector("dt_proj.bias"),
        state_cache(x.trace, f"scan{layer}", (shape.states, own.size)),
    )
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    return row_parallel(weights, out, y, x.width, columns=own, bias=shape.bias)


def _steps(
    weights: Weights, prefix: str, x: Tensor, shape: SelectiveShape, own: Part
) -> tuple[Tensor, Tensor, Tensor]:
    """What dt is made of [T, rank], B and C [T, states], of the channels of all ranks."""
    total = shape.rank + 2 * shape.states
    low, bc = ops.split(
        row_parallel(weights, f"{prefix}.x_proj", x, total, columns=own), shape.rank
    )
    parts = (low, *ops.split(bc, shape.states))
    by = shape.norms
    if by is not None:
        names = (f"{prefix}.{name}_layernorm" for name in ("dt", "b", "c"))
        parts = tuple(
            norm.rms_norm(weights, name, part, by.eps, weight=by.weights)
            for name, part in zip(names, parts, strict=True)
        )
    low, b, c = parts
    return low, b, c
