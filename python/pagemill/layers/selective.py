"""The mixer of Mamba, in which every element of a channel's state decays by itself.

Every rank computes whole mixers, because a rank's rows of `in_proj` would lie in two places.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
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
    if weights.shard.ranks > 1:
        weights.note("every rank computes whole state-space layers")
    channels = shape.channels

    def project(index: int) -> Tensor:
        rows = Part(index * channels, (index + 1) * channels, 2 * channels)
        return linear(weights, f"{prefix}.in_proj", x, (channels,), bias=shape.bias, rows=rows)

    inner, gate = project(0), project(1)
    inner = ops.causal_conv(
        inner,
        weights.small(f"{prefix}.conv1d.weight", (channels, 1, shape.taps)),
        weights.vector(f"{prefix}.conv1d.bias", channels) if shape.conv_bias else None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, channels)),
    )
    low, b, c = _steps(weights, prefix, inner, shape)
    y = ops.selective_scan(
        inner,
        linear(weights, f"{prefix}.dt_proj", low, (channels,)),
        b,
        c,
        weights.small(f"{prefix}.A_log", (channels, shape.states)),
        weights.vector(f"{prefix}.D", channels),
        weights.vector(f"{prefix}.dt_proj.bias", channels),
        state_cache(x.trace, f"scan{layer}", (shape.states, channels)),
    )
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    return linear(weights, f"{prefix}.out_proj", y, (x.width,), bias=shape.bias)


def _steps(
    weights: Weights, prefix: str, x: Tensor, shape: SelectiveShape
) -> tuple[Tensor, Tensor, Tensor]:
    """What dt is made of [T, rank], B and C [T, states], whose weights are rows of one matrix."""
    total = shape.rank + 2 * shape.states
    results: list[Tensor] = []
    begin = 0
    for name, size in (("dt", shape.rank), ("b", shape.states), ("c", shape.states)):
        rows = Part(begin, begin + size, total)
        part = linear(weights, f"{prefix}.x_proj", x, (size,), rows=rows)
        if shape.norms is not None:
            by = shape.norms
            full = f"{prefix}.{name}_layernorm"
            part = norm.rms_norm(weights, full, part, by.eps, weight=by.weights)
        results.append(part)
        begin += size
    return results[0], results[1], results[2]
