"""Layers of the gated delta rule: the linear attention of Qwen3-Next, Qwen3.5, OLMo Hybrid and Kimi
Linear. Ranks divide the groups of heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import (
    divide_evenly,
    linear,
    linear_of_parts,
    row_parallel,
    row_parallel_of_parts,
)
from pagemill.layers.state_space import state_cache
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """`heads` with `values` each; heads of one of `groups` share q and k of `keys`: neighbors, or
    if `in_turn` those that are `groups` apart. The convolution in front has `taps`. `share_scale`
    multiplies the share of a value that is written; `eps` is that of the norm of each head's
    result."""

    heads: int
    groups: int
    keys: int
    values: int
    taps: int
    eps: float
    share_scale: float = 1.0
    in_turn: bool = False

    @property
    def channels(self) -> int:
        """Of the convolution: q, k and v."""
        return 2 * self.groups * self.keys + self.heads * self.values

    @property
    def of_group(self) -> int:
        """Heads of a group."""
        return self.heads // self.groups

    def channels_of(self, groups: Part) -> tuple[Part, ...]:
        """Channels of q, k and v of these groups, numbered with q of all groups first, then k; v in
        as many parts as `heads_of`."""
        keys, first = groups.times(self.keys), 2 * self.groups * self.keys
        return (
            keys.within(self.channels, 0),
            keys.within(self.channels, keys.total),
            *(part.within(self.channels, first) for part in self.values_of(groups)),
        )

    def heads_of(self, groups: Part) -> tuple[Part, ...]:
        """The heads of these groups: in one part, unless those of a group are apart."""
        if not self.in_turn or groups.whole:
            return (groups.times(self.of_group),)
        firsts = range(0, self.heads, self.groups)
        return tuple(groups.within(self.heads, first) for first in firsts)

    def values_of(self, groups: Part) -> tuple[Part, ...]:
        """The values of `heads_of` these groups."""
        return tuple(part.times(self.values) for part in self.heads_of(groups))


def delta_layer(weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{conv1d, A_log, dt_bias, norm, out_proj}`, and either `in_proj_qkvz` with the
    rows of a group together, or `in_proj_{qkv,z}`; and either `in_proj_ba` with the rows of a group
    together, or `in_proj_{b,a}`.
    """
    out = f"{prefix}.out_proj"
    own = _divide(weights, out, shape)
    by_group = weights.has(f"{prefix}.in_proj_qkvz.weight")
    qkv, gate = (_project_by_group if by_group else _project)(weights, prefix, x, shape, own)
    b, a = _rates(weights, prefix, x, shape, own, by_group=by_group)
    stored = (shape.channels, 1, shape.taps)
    order = _order(shape, own, by_group=by_group)
    qkv = ops.causal_conv(
        qkv,
        weights.small(f"{prefix}.conv1d.weight", stored, row_order=order),
        None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, qkv.width)),
    )
    y = _rule(weights, prefix, (qkv, b, a), shape, own, layer, by_group=by_group)
    rows = tuple(int(dim) for dim in gate.shape[1:])
    y = norm.rms_norm(weights, f"{prefix}.norm", y, shape.eps, row_shape=rows)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    return row_parallel_of_parts(weights, out, y, x.width, columns=shape.values_of(own))


def separate_delta_layer(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int
) -> Tensor:
    """As `delta_layer`, with a projection and a convolution each for q, k and v.

    Weights: `<prefix>.{q,k,v,b,a,g,o}_proj`, `<prefix>.{q,k,v}_conv1d`, `<prefix>.{A_log, dt_bias,
    o_norm}`.
    """
    own = _divide(weights, f"{prefix}.o_proj", shape)
    heads = own.times(shape.of_group)
    b, a = (linear(weights, f"{prefix}.{name}_proj", x, (heads.size,), rows=heads) for name in "ba")
    values = heads.times(shape.values)
    gate = linear(weights, f"{prefix}.g_proj", x, (values.size,), rows=values)
    inputs = _convolved(weights, prefix, x, shape, own, layer), b, a
    gated = gate, ops.ActivationKind.SILU
    return _separate(weights, prefix, inputs, shape, own, layer, gated, x.width)


def kimi_delta_layer(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int
) -> Tensor:
    """As `separate_delta_layer`, with a decay for each key; decays and the gate, of which the
    sigmoid is taken, are products of low rank.

    Weights: `<prefix>.{q,k,v,b,f_a,f_b,g_a,g_b,o}_proj`, `<prefix>.{q,k,v}_conv1d`, `<prefix>.
    {A_log, dt_bias, o_norm}`.
    """
    own = _divide(weights, f"{prefix}.o_proj", shape)
    heads = own.times(shape.of_group)

    def low_rank(name: str, size: int) -> Tensor:
        low = linear(weights, f"{prefix}.{name}_a_proj", x, (shape.keys,))
        rows = heads.times(size)
        return linear(weights, f"{prefix}.{name}_b_proj", low, (rows.size,), rows=rows)

    b = linear(weights, f"{prefix}.b_proj", x, (heads.size,), rows=heads)
    decays = low_rank("f", shape.keys)
    inputs = _convolved(weights, prefix, x, shape, own, layer), b, decays
    gated = low_rank("g", shape.values), ops.ActivationKind.SIGMOID
    return _separate(weights, prefix, inputs, shape, own, layer, gated, x.width)


def _divide(weights: Weights, out: str, shape: DeltaShape) -> Part:
    """The groups that this rank computes."""
    together = 1 if shape.in_turn else shape.of_group
    what = "layers of the gated delta rule, by groups of heads"
    return divide_evenly(weights, [out], shape.groups, together * shape.values, what)


def _order(shape: DeltaShape, own: Part, *, by_group: bool) -> list[int]:
    """The rank's channels of the convolution, in the order of its inputs; none stands for all as
    they are stored."""
    if by_group:
        groups = [Part(group, group + 1, shape.groups) for group in own.indices]
    else:
        groups = [] if own.whole else [own]
    return [i for group in groups for part in shape.channels_of(group) for i in part.indices]


def _convolved(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, own: Part, layer: int
) -> Tensor:
    """q, k and v behind convolutions of their own."""

    def convolve(name: str, part: Part) -> Tensor:
        stored, order = (part.total, 1, shape.taps), () if part.whole else part.indices
        taps = weights.small(f"{prefix}.{name}_conv1d.weight", stored, row_order=order)
        state = state_cache(x.trace, f"{name}_conv{layer}", (shape.taps - 1, part.size))
        y = linear(weights, f"{prefix}.{name}_proj", x, (part.size,), rows=part)
        return ops.causal_conv(y, taps, None, state)

    keys, values = own.times(shape.keys), own.times(shape.of_group * shape.values)
    return ops.concat(convolve("q", keys), convolve("k", keys), convolve("v", values))


def _separate(
    weights: Weights,
    prefix: str,
    inputs: tuple[Tensor, Tensor, Tensor],
    shape: DeltaShape,
    own: Part,
    layer: int,
    gate: tuple[Tensor, ops.ActivationKind],
    hidden: int,
) -> Tensor:
    """The rule on qkv, b and a, normalized, times the activation of the gate, and projected."""
    y = _rule(weights, prefix, inputs, shape, own, layer)
    values = own.times(shape.of_group * shape.values)
    y = norm.rms_norm(weights, f"{prefix}.o_norm", y, shape.eps, row_shape=(values.size,))
    y = ops.gated_activation(gate[0], y, gate[1])
    return row_parallel(weights, f"{prefix}.o_proj", y, hidden, columns=values)


def _rule(
    weights: Weights,
    prefix: str,
    inputs: tuple[Tensor, Tensor, Tensor],
    shape: DeltaShape,
    own: Part,
    layer: int,
    *,
    by_group: bool = False,
) -> Tensor:
    """The rule on qkv, b and a: [T, heads, values] of this rank."""
    qkv, b, a = inputs
    heads = own.size * shape.of_group
    of_keys = a.width > heads
    # Some checkpoints keep the dimensions of activations.
    stored = (1, 1, shape.heads, 1) if of_keys else (shape.heads,)
    parts = shape.heads_of(own)

    def of_heads(name: str, size: int, stored: tuple[int, ...]) -> Tensor:
        """`size` numbers for each of this rank's heads."""
        if len(parts) == 1:
            part = parts[0].times(size)
            return weights.vector(name, part.total, part=part, stored=stored)
        order = [index for part in parts for index in part.times(size).indices]
        return weights.small(name, stored, row_order=order)

    steps = shape.keys if of_keys else 1
    return ops.gated_delta(
        qkv,
        b,
        a,
        of_heads(f"{prefix}.A_log", 1, stored),
        of_heads(f"{prefix}.dt_bias", steps, (shape.heads * steps,)),
        state_cache(qkv.trace, f"delta{layer}", (heads, shape.keys, shape.values)),
        by_group=by_group,
        in_turn=shape.in_turn,
        share_scale=shape.share_scale,
    )


def _project(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, own: Part
) -> tuple[Tensor, Tensor]:
    """q, k and v; the gate."""
    gate = linear_of_parts(weights, f"{prefix}.in_proj_z", x, shape.values_of(own))
    channels = [Part(0, shape.channels, shape.channels)] if own.whole else shape.channels_of(own)
    return linear_of_parts(weights, f"{prefix}.in_proj_qkv", x, channels), gate


def _project_by_group(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, own: Part
) -> tuple[Tensor, Tensor]:
    of_group = shape.channels // shape.groups
    row = (own.size, of_group + shape.of_group * shape.values)
    rows = own.times(row[1])
    return ops.split(linear(weights, f"{prefix}.in_proj_qkvz", x, row, rows=rows), of_group)


def _rates(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, own: Part, *, by_group: bool
) -> tuple[Tensor, Tensor]:
    """b and a: of each head, or `by_group` of those of each group."""
    if not weights.has(f"{prefix}.in_proj_ba.weight"):
        heads = shape.heads_of(own)
        b, a = (linear_of_parts(weights, f"{prefix}.in_proj_{what}", x, heads) for what in "ba")
        return b, a
    row = None if by_group else (own.size * shape.of_group,)
    both = 2 * shape.of_group
    y = linear(weights, f"{prefix}.in_proj_ba", x, (own.size, both), rows=own.times(both))
    return ops.split(y, shape.of_group, row_shapes=(row, row))
