"""The mixers of RWKV-5, RWKV-6 and RWKV-7, in place of attention: each head has a matrix of what it
remembers, whose rows decay each at its own rate.

Every rank computes whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.state_space import state_cache
from pagemill.layers.wkv import RWKV4_SHIFT, TokenShift, note_whole_layers
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

    @property
    def width(self) -> int:
        """Of all heads."""
        return self.count * self.size

    @property
    def row_shape(self) -> tuple[int, int]:
        return self.count, self.size

    def state(self, trace: Trace, layer: int) -> Cache:
        return state_cache(trace, f"wkv{layer}", (self.count, self.size, self.size))

    def norm(self, weights: Weights, name: str, y: Tensor) -> Tensor:
        """y [T, count, size], each head by itself."""
        vectors = (weights.vector(f"{name}.{kind}", self.width) for kind in ("weight", "bias"))
        return ops.layer_norm(y, *vectors, eps=self.eps)


def rwkv5_mixer(weights: Weights, prefix: str, x: Tensor, heads: WkvHeads, layer: int) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{key, value, receptance, gate, output}`, `time_mix_*` of the first four,
    `time_decay`, `time_faaaa` and `ln_x`.
    """
    note_whole_layers(weights)
    mixed = RWKV4_SHIFT.mixed(weights, prefix, x, f"mixer{layer}")
    read = {name: mixed(name) for name in ("receptance", "key", "value", "gate")}
    decay = weights.vector(f"{prefix}.time_decay", heads.width, stored=heads.row_shape)
    return _gated(weights, prefix, read, decay, heads, layer)


def rwkv6_mixer(
    weights: Weights, prefix: str, x: Tensor, heads: WkvHeads, layer: int, ranks: tuple[int, int]
) -> Tensor:
    """As `rwkv5_mixer`, with decays and shares of the previous token that depend on tokens, by
    matrices of these ranks: of the shares, of the decays.

    Weights: those of `rwkv5_mixer` except `time_mix_*`, `time_maa_{x, w, k, v, r, g}`,
    `time_maa_w{1, 2}` and `time_decay_w{1, 2}`.
    """
    note_whole_layers(weights)
    w, k, v, r, g = _mixed_by_tokens(weights, prefix, x, layer, ranks[0])
    low = linear(weights, f"{prefix}.time_decay_w1", w, (ranks[1],), transposed=True)
    name = f"{prefix}.time_decay_w2"
    decay = ops.linear(
        ops.activation(low, ops.ActivationKind.TANH),
        weights.linear(name, (heads.width, ranks[1]), transposed=True),
        weights.vector(f"{prefix}.time_decay", heads.width),
    )
    read = {"receptance": r, "key": k, "value": v, "gate": g}
    return _gated(weights, prefix, read, decay, heads, layer)


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
    heads: WkvHeads,
    layer: int,
) -> Tensor:
    """What the projections make of what they read, [T, H]."""
    receptance, key, value, gate = (
        linear(weights, f"{prefix}.{name}", read[name], heads.row_shape)
        for name in ("receptance", "key", "value", "gate")
    )
    bonus = weights.vector(f"{prefix}.time_faaaa", heads.width, stored=heads.row_shape)
    state = heads.state(key.trace, layer)
    y = ops.matrix_wkv(receptance, decay, key, value, bonus, state)
    y = heads.norm(weights, f"{prefix}.ln_x", y)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SILU)
    return linear(weights, f"{prefix}.output", y, (read["gate"].width,))


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
    heads: WkvHeads,
    ranks: LowRanks,
    layer: int,
    first_value: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """x [T, H] -> [T, H], and this layer's values: the first layer's are `first_value` of the
    others. The states of layer `layer` have their own caches.

    Weights: `<prefix>.{r_proj, k_proj, v_proj, o_proj, g_norm}`, `{w, a, v, g}_lora.lora.{0, 2}`,
    `x_{r, w, k, v, a, g}`, `k_k`, `k_a` and `r_k`.
    """
    note_whole_layers(weights)
    mixed = RWKV7_SHIFT.mixed(weights, prefix, x, f"mixer{layer}")
    identity = ops.ActivationKind.IDENTITY

    def project(name: str, of: Tensor) -> Tensor:
        return linear(weights, f"{prefix}.{name}_proj", of, heads.row_shape)

    def low_rank(
        name: str, of: Tensor, rank: int, kind: ops.ActivationKind = identity, bias: bool = True
    ) -> Tensor:
        low = linear(weights, f"{prefix}.{name}_lora.lora.0", of, (rank,))
        if kind is not identity:
            low = ops.activation(low, kind)
        return linear(weights, f"{prefix}.{name}_lora.lora.2", low, heads.row_shape, bias=bias)

    of_value = mixed("v")
    value = project("v", of_value)
    if first_value is not None:
        difference = ops.add(first_value, ops.scale(value, -1.0))
        share = low_rank("v", of_value, ranks.value)
        share = ops.gated_activation(share, difference, ops.ActivationKind.SIGMOID)
        value = ops.add(value, share)
    y, own = ops.matrix_wkv_with_removal(
        project("r", mixed("r")),
        low_rank("w", mixed("w"), ranks.decay, ops.ActivationKind.TANH),
        project("k", mixed("k")),
        value,
        weights.vector(f"{prefix}.r_k", heads.width, stored=heads.row_shape),
        ops.KeyRemoval(
            low_rank("a", mixed("a"), ranks.rate),
            weights.vector(f"{prefix}.k_k", heads.width),
            weights.vector(f"{prefix}.k_a", heads.width),
        ),
        heads.state(x.trace, layer),
    )
    y = ops.add(heads.norm(weights, f"{prefix}.g_norm", y), own)
    gate = low_rank("g", mixed("g"), ranks.gate, ops.ActivationKind.SIGMOID, bias=False)
    y = ops.gated_activation(gate, y, identity)
    return linear(weights, f"{prefix}.o_proj", y, (x.width,)), value
