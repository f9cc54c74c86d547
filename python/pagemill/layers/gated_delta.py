"""Layers of the gated delta rule: the linear attention of Qwen3-Next, Qwen3.5, OLMo Hybrid and Kimi
Linear.

Every rank computes whole ones, because a rank's channels of the convolution would lie in three
places.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.state_space import state_cache
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
    def group_values(self) -> int:
        """Values of all heads of a group."""
        return self.heads // self.groups * self.values

    def channels_by_group(self) -> list[int]:
        """Channels of q, k and v of each group, numbered with q of all groups first, then k."""
        k, v = self.groups * self.keys, 2 * self.groups * self.keys
        order: list[int] = []
        for group in range(self.groups):
            for first, size in ((0, self.keys), (k, self.keys), (v, self.group_values)):
                order += range(first + group * size, first + (group + 1) * size)
        return order


def delta_layer(weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{conv1d, A_log, dt_bias, norm, out_proj}`, and either `in_proj_qkvz` with the
    rows of a group together, or `in_proj_{qkv,z}`; and either `in_proj_ba` with the rows of a group
    together, or `in_proj_{b,a}`.
    """
    _note_ranks(weights)
    by_group = weights.has(f"{prefix}.in_proj_qkvz.weight")
    qkv, gate = (_project_by_group if by_group else _project)(weights, prefix, x, shape)
    b, a = _rates(weights, prefix, x, shape, by_group=by_group)
    qkv = ops.causal_conv(
        qkv,
        weights.small(
            f"{prefix}.conv1d.weight",
            (shape.channels, 1, shape.taps),
            row_order=shape.channels_by_group() if by_group else (),
        ),
        None,
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, shape.channels)),
    )
    y = _rule(weights, prefix, (qkv, b, a), shape, layer, by_group=by_group)
    rows = tuple(int(dim) for dim in gate.shape[1:])
    y = norm.rms_norm(weights, f"{prefix}.norm", y, shape.eps, row_shape=rows)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    return linear(weights, f"{prefix}.out_proj", y, (x.width,))


def separate_delta_layer(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int
) -> Tensor:
    """As `delta_layer`, with a projection and a convolution each for q, k and v.

    Weights: `<prefix>.{q,k,v,b,a,g,o}_proj`, `<prefix>.{q,k,v}_conv1d`, `<prefix>.{A_log, dt_bias,
    o_norm}`.
    """
    b, a = (linear(weights, f"{prefix}.{name}_proj", x, (shape.heads,)) for name in "ba")
    gate = linear(weights, f"{prefix}.g_proj", x, (shape.heads * shape.values,))
    inputs = _convolved(weights, prefix, x, shape, layer), b, a
    gated = gate, ops.ActivationKind.SILU
    return _separate(weights, prefix, inputs, shape, layer, gated, x.width)


def kimi_delta_layer(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int
) -> Tensor:
    """As `separate_delta_layer`, with a decay for each key; decays and the gate, of which the
    sigmoid is taken, are products of low rank.

    Weights: `<prefix>.{q,k,v,b,f_a,f_b,g_a,g_b,o}_proj`, `<prefix>.{q,k,v}_conv1d`, `<prefix>.
    {A_log, dt_bias, o_norm}`.
    """

    def low_rank(name: str, width: int) -> Tensor:
        low = linear(weights, f"{prefix}.{name}_a_proj", x, (shape.keys,))
        return linear(weights, f"{prefix}.{name}_b_proj", low, (width,))

    b = linear(weights, f"{prefix}.b_proj", x, (shape.heads,))
    decays = low_rank("f", shape.heads * shape.keys)
    inputs = _convolved(weights, prefix, x, shape, layer), b, decays
    gate = low_rank("g", shape.heads * shape.values)
    gated = gate, ops.ActivationKind.SIGMOID
    return _separate(weights, prefix, inputs, shape, layer, gated, x.width)


def _convolved(weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, layer: int) -> Tensor:
    """q, k and v behind convolutions of their own."""
    _note_ranks(weights)

    def convolve(name: str, width: int) -> Tensor:
        taps = weights.small(f"{prefix}.{name}_conv1d.weight", (width, 1, shape.taps))
        state = state_cache(x.trace, f"{name}_conv{layer}", (shape.taps - 1, width))
        y = linear(weights, f"{prefix}.{name}_proj", x, (width,))
        return ops.causal_conv(y, taps, None, state)

    keys, values = shape.groups * shape.keys, shape.heads * shape.values
    return ops.concat(convolve("q", keys), convolve("k", keys), convolve("v", values))


def _separate(
    weights: Weights,
    prefix: str,
    inputs: tuple[Tensor, Tensor, Tensor],
    shape: DeltaShape,
    layer: int,
    gate: tuple[Tensor, ops.ActivationKind],
    hidden: int,
) -> Tensor:
    """The rule on qkv, b and a, normalized, times the activation of the gate, and projected."""
    y = _rule(weights, prefix, inputs, shape, layer)
    rows = (shape.heads * shape.values,)
    y = norm.rms_norm(weights, f"{prefix}.o_norm", y, shape.eps, row_shape=rows)
    y = ops.gated_activation(gate[0], y, gate[1])
    return linear(weights, f"{prefix}.o_proj", y, (hidden,))


def _rule(
    weights: Weights,
    prefix: str,
    inputs: tuple[Tensor, Tensor, Tensor],
    shape: DeltaShape,
    layer: int,
    *,
    by_group: bool = False,
) -> Tensor:
    """The rule on qkv, b and a: [T, heads, values]."""
    qkv, b, a = inputs
    # Some checkpoints keep the dimensions of activations.
    stored = (1, 1, shape.heads, 1) if a.width > shape.heads else None
    return ops.gated_delta(
        qkv,
        b,
        a,
        weights.vector(f"{prefix}.A_log", shape.heads, stored=stored),
        weights.vector(f"{prefix}.dt_bias", a.width),
        state_cache(qkv.trace, f"delta{layer}", (shape.heads, shape.keys, shape.values)),
        by_group=by_group,
        in_turn=shape.in_turn,
        share_scale=shape.share_scale,
    )


def _note_ranks(weights: Weights) -> None:
    if weights.shard.ranks > 1:
        weights.note("every rank computes whole layers of the gated delta rule")


def _project(weights: Weights, prefix: str, x: Tensor, shape: DeltaShape) -> tuple[Tensor, Tensor]:
    """q, k and v; the gate."""
    return (
        linear(weights, f"{prefix}.in_proj_qkv", x, (shape.channels,)),
        linear(weights, f"{prefix}.in_proj_z", x, (shape.heads, shape.values)),
    )


def _project_by_group(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape
) -> tuple[Tensor, Tensor]:
    of_group = shape.channels // shape.groups
    rows = (shape.groups, of_group + shape.group_values)
    return ops.split(linear(weights, f"{prefix}.in_proj_qkvz", x, rows), of_group)


def _rates(
    weights: Weights, prefix: str, x: Tensor, shape: DeltaShape, *, by_group: bool
) -> tuple[Tensor, Tensor]:
    """b and a: of each head, or `by_group` of those of each group."""
    if not weights.has(f"{prefix}.in_proj_ba.weight"):
        b, a = (linear(weights, f"{prefix}.in_proj_{what}", x, (shape.heads,)) for what in "ba")
        return b, a
    heads = shape.heads // shape.groups
    rows = None if by_group else (shape.heads,)
    both = linear(weights, f"{prefix}.in_proj_ba", x, (shape.groups, 2 * heads))
    return ops.split(both, heads, row_shapes=(rows, rows))
