"""State-space layers: the mixer of Mamba-2.

Ranks divide the heads, with B and C of their groups. If there are fewer groups than ranks, several
ranks have the same one; its norm is over the heads of all of them, which are gathered for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import divide_evenly, linear, own_columns, row_parallel
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


@dataclass(frozen=True, slots=True)
class _Own:
    """This rank's heads and groups of a mixer, and their numbers in rows that hold those of all."""

    shape: MixerShape
    heads: Part
    groups: Part

    @property
    def features(self) -> Part:
        """Of the heads."""
        return self.heads.times(self.shape.head_dim)

    @property
    def row_shape(self) -> tuple[int, int]:
        """Of the features, by group."""
        return self.groups.size, self.features.size // self.groups.size

    @property
    def channels(self) -> tuple[Part, Part, Part]:
        """Of the convolution: x, B and C."""
        shape, total = self.shape, self.shape.channels
        states = self.groups.times(shape.states)
        return (
            self.features.within(total, 0),
            states.within(total, shape.inner),
            states.within(total, shape.inner + states.total),
        )


def mixer(
    weights: Weights, prefix: str, x: Tensor, shape: MixerShape, eps: float, layer: int
) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{in_proj, conv1d, A_log, D, dt_bias, norm, out_proj}`. in_proj yields the
    gate, the input of the convolution, and dt; norms are of groups.
    """
    own = _divide(weights, f"{prefix}.out_proj", shape)
    gate, xbc, dt = _project(weights, f"{prefix}.in_proj", x, own)
    xbc = ops.causal_conv(
        xbc,
        _taps(weights, f"{prefix}.conv1d.weight", own),
        _conv_bias(weights, f"{prefix}.conv1d.bias", own) if shape.conv_bias else None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, xbc.width)),
    )
    a_log, d, dt_bias = (
        weights.vector(f"{prefix}.{name}", shape.heads, part=own.heads)
        for name in ("A_log", "D", "dt_bias")
    )
    y = ops.state_space_scan(
        xbc,
        dt,
        a_log,
        d,
        dt_bias,
        state_cache(x.trace, f"scan{layer}", (own.heads.size, shape.states, shape.head_dim)),
    )
    if shape.gating is Gating.NORM_BEFORE:
        y = _norm(weights, prefix, y, own, eps)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    if shape.gating is Gating.NORM_BEHIND:
        y = _norm(weights, prefix, y, own, eps)
    return row_parallel(
        weights, f"{prefix}.out_proj", y, x.width, columns=own.features, bias=shape.output_bias
    )


def _divide(weights: Weights, out: str, shape: MixerShape) -> _Own:
    """The heads that this rank computes: all if they do not divide evenly."""
    groups, of_group = shape.groups, shape.heads // shape.groups
    if weights.shard.ranks % groups:
        size = of_group * shape.head_dim
        own = divide_evenly(weights, [out], groups, size, "state-space layers, by groups of heads")
        return _Own(shape, own.times(of_group), own)
    own = divide_evenly(weights, [out], shape.heads, shape.head_dim, "state-space layers, by heads")
    if own.whole:
        return _Own(shape, own, Part(0, groups, groups))
    group = own.begin // of_group
    return _Own(shape, own, Part(group, group + 1, groups))


def _norm(weights: Weights, prefix: str, y: Tensor, own: _Own, eps: float) -> Tensor:
    """y [T, own groups, features of a group] normalized by the features of whole groups."""
    name, features = f"{prefix}.norm.weight", own.features
    normalized = own.groups.times(features.total // own.groups.total)
    weight = weights.vector(name, features.total, part=normalized)
    if normalized == features:
        return ops.rms_norm(y, weight, eps=eps)
    y = ops.all_gather(y, features.total, shard=weights.shard)
    y = own_columns(y, normalized, (normalized.size,))
    first = normalized.begin
    of_group = Part(features.begin - first, features.end - first, normalized.size)
    return own_columns(ops.rms_norm(y, weight, eps=eps), of_group, own.row_shape)


def _taps(weights: Weights, name: str, own: _Own) -> Tensor:
    """The convolution's taps, times the scales of its channels: the convolution is linear."""
    shape, scales = own.shape, own.shape.scales
    states = shape.groups * shape.states
    factors = [scales.x] * shape.inner + [scales.b] * states + [scales.c] * states
    stored = (shape.channels, 1, shape.taps)
    return weights.small(name, stored, row_factors=factors, row_order=_order(own))


def _conv_bias(weights: Weights, name: str, own: _Own) -> Tensor:
    if own.heads.whole:
        return weights.vector(name, own.shape.channels)
    return weights.small(name, (own.shape.channels,), row_order=_order(own))


def _order(own: _Own) -> list[int]:
    """The rank's channels; none stands for all."""
    if own.heads.whole:
        return []
    return [channel for part in own.channels for channel in part.indices]


def _project(weights: Weights, name: str, x: Tensor, own: _Own) -> tuple[Tensor, Tensor, Tensor]:
    """The gate, the input of the convolution before its scales, and dt, whose weights are rows of
    one matrix."""
    shape = own.shape
    total = shape.inner + shape.channels + shape.heads

    def project(part: Part, first: int, row_shape: tuple[int, ...] = ()) -> Tensor:
        rows = part.within(total, first)
        return linear(weights, name, x, row_shape or (rows.size,), bias=shape.bias, rows=rows)

    gate = project(own.features, 0, own.row_shape)
    if own.heads.whole:
        xbc = project(Part(0, shape.channels, shape.channels), shape.inner)
    else:
        xbc = ops.concat(*(project(part, shape.inner) for part in own.channels))
    dt = project(own.heads, shape.inner + shape.channels)
    return ops.scale(gate, shape.scales.gate), xbc, ops.scale(dt, shape.scales.dt)
