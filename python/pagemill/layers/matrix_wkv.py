"""The mixers of RWKV-5, RWKV-6 and RWKV-7, in place of attention: each head has a matrix of what it
remembers, whose rows decay each at its own rate.

Ranks divide the heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import divide_evenly, linear, row_parallel
from pagemill.layers.state_space import state_cache
from pagemill.layers.wkv import RWKV4_SHIFT, TokenShift
from pagemill.ops.shard import Part
from pagemill.ops.trace import Cache, Tensor, Trace

RWKV6_SHIFT = TokenShift("time_maa_", of_previous=True)
RWKV7_SHIFT = TokenShift("x_", of_previous=True)
_RWKV6_MIXED = ("w", "k", "v", "r", "g")  # in the order of `time_maa_w2`


@dataclass(frozen=True, slots=True)
class WkvHeads:
    """Heads of `size` keys and as many values; `eps` of the norm over each head's results."""

    count: int
    size: int
    eps: float

    def divide(self, weights: Weights, outs: Sequence[str]) -> OwnHeads:
        """Those that this rank computes, which are columns of each of the linear layers `outs`."""
        own = divide_evenly(weights, outs, self.count, self.size, "RWKV layers, by heads")
        return OwnHeads(self, own)


@dataclass(frozen=True, slots=True)
class OwnHeads:
    """This rank's heads of all `of`."""

    of: WkvHeads
    part: Part

    @property
    def features(self) -> Part:
        return self.part.times(self.of.size)

    @property
    def row_shape(self) -> tuple[int, int]:
        return self.part.size, self.of.size

    def linear(self, weights: Weights, name: str, x: Tensor, *, bias: bool = False) -> Tensor:
        """x [T, in] -> [T, own heads, size]."""
        return linear(weights, name, x, self.row_shape, bias=bias, rows=self.features)

    def vector(self, weights: Weights, name: str, *, by_head: bool = False) -> Tensor:
        """The numbers `name` of features, f32 [own heads * size], stored as [count, size] if
        `by_head`."""
        features = self.features
        stored = (self.of.count, self.of.size) if by_head else None
        return weights.vector(name, features.total, part=features, stored=stored)

    def state(self, trace: Trace, layer: int) -> Cache:
        return state_cache(trace, f"wkv{layer}", (*self.row_shape, self.of.size))

    def norm(self, weights: Weights, name: str, y: Tensor) -> Tensor:
        """y [T, own heads, size], each head by itself."""
        vectors = (self.vector(weights, f"{name}.{kind}") for kind in ("weight", "bias"))
        return ops.layer_norm(y, *vectors, eps=self.of.eps)


def rwkv5_mixer(weights: Weights, prefix: str, x: Tensor, heads: WkvHeads, layer: int) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{key, value, receptance, gate, output}`, `time_mix_*` of the first four,
    `time_decay`, `time_faaaa` and `ln_x`.
    """
    own = heads.divide(weights, [f"{prefix}.output"])
    mixed = RWKV4_SHIFT.mixed(weights, prefix, x, f"mixer{layer}")
    read = {name: mixed(name) for name in ("receptance", "key", "value", "gate")}
    decay = own.vector(weights, f"{prefix}.time_decay", by_head=True)
    return _gated(weights, prefix, read, decay, own, layer)


def rwkv6_mixer(
    weights: Weights, prefix: str, x: Tensor, heads: WkvHeads, layer: int, ranks: tuple[int, int]
) -> Tensor:
    """As `rwkv5_mixer`, with decays and shares of the previous token that depend on tokens, by
    matrices of these ranks: of the shares, of the decays.

    Weights: those of `rwkv5_mixer` except `time_mix_*`, `time_maa_{x, w, k, v, r, g}`,
    `time_maa_w{1, 2}` and `time_decay_w{1, 2}`.
    """
    own = heads.divide(weights, [f"{prefix}.output"])
    w, k, v, r, g = _mixed_by_tokens(weights, prefix, x, layer, ranks[0])
    low = linear(weights, f"{prefix}.time_decay_w1", w, (ranks[1],), transposed=True)
    name = f"{prefix}.time_decay_w2"
    rows = own.features
    decay = ops.linear(
        ops.activation(low, ops.ActivationKind.TANH),
        weights.linear(name, (rows.total, ranks[1]), rows=rows, transposed=True),
        own.vector(weights, f"{prefix}.time_decay"),
    )
    read = {"receptance": r, "key": k, "value": v, "gate": g}
    return _gated(weights, prefix, read, decay, own, layer)


def _mixed_by_tokens(
    weights: Weights, prefix: str, x: Tensor, layer: int, rank: int
) -> tuple[Tensor, ...]:
    """x plus shares of what the previous token differs from it by: what decay, key, value,
    receptance and gate read, each [T, H]."""
    count, hidden = len(_RWKV6_MIXED), x.width
    differences = ops.causal_conv(
        x,
        weights.constant(f"differences.{hidden}", [[1.0, -1.0]] * hidden),
        None,
        state_cache(x.trace, f"mixer{layer}.previous", (1, hidden)),
        ops.ActivationKind.IDENTITY,
    )
    share = weights.vector(f"{prefix}.time_maa_x", hidden)
    low = linear(
        weights,
        f"{prefix}.time_maa_w1",
        ops.add(x, ops.scale_columns(differences, share)),
        (count, rank),
        transposed=True,
    )
    shares = ops.head_linear(
        ops.activation(low, ops.ActivationKind.TANH),
        weights.turned_stack(f"{prefix}.time_maa_w2.weight", (count, hidden, rank)),
    )
    names = [f"{prefix}.time_maa_{name}" for name in _RWKV6_MIXED]
    shares = ops.add(shares, weights.vectors(names, hidden))
    all_differences = ops.concat(*[differences] * count, row_shape=(count, hidden))
    added = ops.gated_activation(shares, all_differences, ops.ActivationKind.IDENTITY)
    rest = ops.add(ops.concat(*[x] * count), added)
    parts: list[Tensor] = []
    for _ in range(count - 1):
        part, rest = ops.split(rest, hidden)
        parts.append(part)
    return (*parts, rest)


def _gated(
    weights: Weights,
    prefix: str,
    read: dict[str, Tensor],
    decay: Tensor,
    own: OwnHeads,
    layer: int,
) -> Tensor:
    """What the projections make of what they read, [T, H]."""
    receptance, key, value, gate = (
        own.linear(weights, f"{prefix}.{name}", read[name])
        for name in ("receptance", "key", "value", "gate")
    )
    bonus = own.vector(weights, f"{prefix}.time_faaaa", by_head=True)
    y = ops.matrix_wkv(receptance, decay, key, value, bonus, own.state(key.trace, layer))
    y = own.norm(weights, f"{prefix}.ln_x", y)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    hidden = read["gate"].width
    return row_parallel(weights, f"{prefix}.output", y, hidden, columns=own.features)


@dataclass(frozen=True, slots=True)
class LowRanks:
    """Ranks of the products that make decays, rates, shares of the first layer's values, and
    gates."""

    decay: int
    rate: int
    value: int
    gate: int


def rwkv7_mixer(
    weights: Weights,
    prefix: str,
    x: Tensor,
    own: OwnHeads,
    ranks: LowRanks,
    layer: int,
    first_value: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """x [T, H] -> [T, H], and this rank's values in this layer: the first layer's are `first_value`
    of the others, so all layers have the same heads `own`. The states of layer `layer` have their
    own caches.

    Weights: `<prefix>.{r_proj, k_proj, v_proj, o_proj, g_norm}`, `{w, a, v, g}_lora.lora.{0, 2}`,
    `x_{r, w, k, v, a, g}`, `k_k`, `k_a` and `r_k`.
    """
    mixed = RWKV7_SHIFT.mixed(weights, prefix, x, f"mixer{layer}")
    identity = ops.ActivationKind.IDENTITY

    def project(name: str, of: Tensor) -> Tensor:
        return own.linear(weights, f"{prefix}.{name}_proj", of)

    def low_rank(
        name: str, of: Tensor, rank: int, kind: ops.ActivationKind = identity, bias: bool = True
    ) -> Tensor:
        low = linear(weights, f"{prefix}.{name}_lora.lora.0", of, (rank,))
        if kind is not identity:
            low = ops.activation(low, kind)
        return own.linear(weights, f"{prefix}.{name}_lora.lora.2", low, bias=bias)

    of_value = mixed("v")
    value = project("v", of_value)
    if first_value is not None:
        difference = ops.add(first_value, ops.scale(value, -1.0))
        share = low_rank("v", of_value, ranks.value)
        share = ops.gated_activation(share, difference, ops.ActivationKind.SIGMOID)
        value = ops.add(value, share)
    y, kept = ops.matrix_wkv_with_removal(
        project("r", mixed("r")),
        low_rank("w", mixed("w"), ranks.decay, ops.ActivationKind.TANH),
        project("k", mixed("k")),
        value,
        own.vector(weights, f"{prefix}.r_k", by_head=True),
        ops.KeyRemoval(
            low_rank("a", mixed("a"), ranks.rate),
            own.vector(weights, f"{prefix}.k_k"),
            own.vector(weights, f"{prefix}.k_a"),
        ),
        own.state(x.trace, layer),
    )
    y = ops.add(own.norm(weights, f"{prefix}.g_norm", y), kept)
    gate = low_rank("g", mixed("g"), ranks.gate, ops.ActivationKind.SIGMOID, bias=False)
    y = ops.gated_activation(gate, y, identity)
    return row_parallel(weights, f"{prefix}.o_proj", y, x.width, columns=own.features), value
