"""State-space layers: the mixer of Mamba-2.

Every rank computes whole mixers, because a rank's rows of `in_proj` would lie in three places.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.ops.program import GroupEntry
from pagemill.ops.shard import Part
from pagemill.ops.trace import Cache, Tensor, Trace

_GROUP = GroupEntry("states", "state_space")


class Gating(Enum):
    """What a mixer does with the result y of its scan."""

    NORM_BEHIND = "norm(silu(gate) * y)"
    NORM_BEFORE = "silu(gate) * norm(y)"
    NO_NORM = "silu(gate) * y"


@dataclass(frozen=True, slots=True)
class MixerScales:
    """Factors of what in_proj yields."""

    gate: float = 1.0
    x: float = 1.0
    b: float = 1.0
    c: float = 1.0
    dt: float = 1.0


@dataclass(frozen=True, slots=True)
class MixerShape:
    """`heads` of `head_dim` features each have `states` rows of state; heads of one of `groups`
    share B and C. The convolution in front has `taps`. in_proj has a bias if `bias`, out_proj if
    `output_bias`."""

    heads: int
    head_dim: int
    groups: int
    states: int
    taps: int
    bias: bool
    output_bias: bool
    conv_bias: bool
    gating: Gating = Gating.NORM_BEHIND
    scales: MixerScales = MixerScales()

    @property
    def inner(self) -> int:
        """Features of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.states


def state_cache(trace: Trace, name: str, dims: tuple[int, ...]) -> Cache:
    """A new cache of recurrent states, f32 of `dims` for each request."""
    return trace.cache(name, trace.group(_GROUP), dims, layout="state", dtype="f32")


def mixer(
    weights: Weights, prefix: str, x: Tensor, shape: MixerShape, eps: float, layer: int
) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{in_proj, conv1d, A_log, D, dt_bias, norm, out_proj}`. in_proj yields the
    gate, the input of the convolution, and dt; norms are of groups.
    """
    if weights.shard.ranks > 1:
        weights.note("every rank computes whole state-space layers")
    group_shape = (shape.groups, shape.inner // shape.groups)
    gate, xbc, dt = _project(weights, f"{prefix}.in_proj", x, shape, group_shape)
    xbc = ops.causal_conv(
        xbc,
        _taps(weights, f"{prefix}.conv1d.weight", shape),
        weights.vector(f"{prefix}.conv1d.bias", shape.channels) if shape.conv_bias else None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, shape.channels)),
    )
    a_log, d, dt_bias = (
        weights.vector(f"{prefix}.{name}", shape.heads) for name in ("A_log", "D", "dt_bias")
    )
    y = ops.state_space_scan(
        xbc,
        dt,
        a_log,
        d,
        dt_bias,
        state_cache(x.trace, f"scan{layer}", (shape.heads, shape.states, shape.head_dim)),
    )
    if shape.gating is Gating.NORM_BEFORE:
        y = _norm(weights, prefix, y, shape, eps)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    if shape.gating is Gating.NORM_BEHIND:
        y = _norm(weights, prefix, y, shape, eps)
    return linear(weights, f"{prefix}.out_proj", y, (x.width,), bias=shape.output_bias)


def _norm(weights: Weights, prefix: str, y: Tensor, shape: MixerShape, eps: float) -> Tensor:
    return ops.rms_norm(y, weights.vector(f"{prefix}.norm.weight", shape.inner), eps=eps)


def _taps(weights: Weights, name: str, shape: MixerShape) -> Tensor:
    """The convolution's taps, times the scales of its channels: the convolution is linear."""
    scales, states = shape.scales, shape.groups * shape.states
    factors = [scales.x] * shape.inner + [scales.b] * states + [scales.c] * states
    return weights.small(name, (shape.channels, 1, shape.taps), row_factors=factors)


def _project(
    weights: Weights, name: str, x: Tensor, shape: MixerShape, gate_shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gate, the input of the convolution before its scales, and dt, whose weights are rows of
    one matrix."""
    total = shape.inner + shape.channels + shape.heads
    results: list[Tensor] = []
    begin = 0
    for row_shape, size in (
        (gate_shape, shape.inner),
        ((shape.channels,), shape.channels),
        ((shape.heads,), shape.heads),
    ):
        rows = Part(begin, begin + size, total)
        results.append(linear(weights, name, x, row_shape, bias=shape.bias, rows=rows))
        begin += size
    gate, xbc, dt = results
    return ops.scale(gate, shape.scales.gate), xbc, ops.scale(dt, shape.scales.dt)
