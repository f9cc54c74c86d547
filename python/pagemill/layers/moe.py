"""Mixture of experts: a router chooses, for each token, some of many gated feed-forward layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.stack import EXPERTS, name_in_layer
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` feed-forward layers of `intermediate` features, under the names of their modules,
    chosen by `routing` of the `router`'s logits; without gates if `gate` is None. `bias` names the
    vector that is added to scores for the choice, if there is one; `logits_cap` bounds logits to
    cap * tanh(logit / cap), 0 leaves them; `shared` are the features of the layer `shared_name`,
    which every token has, 0 for none.
    """

    count: int
    intermediate: int
    kind: ops.ActivationKind
    routing: ops.Routing
    gate: str | None = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    router: str = "gate"
    bias: str | None = None
    logits_cap: float = 0.0
    shared: int = 0
    shared_name: str = "shared_experts"
    shared_parts: MlpParts = MlpParts()


def moe(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> Tensor:
    """x [N, H] -> the weighted sum of down(act(gate(x)) * up(x)) of each token's experts, [N, H],
    plus the shared experts.

    Weights: the router and its bias, `<prefix>.experts` and the shared layer, of which ranks divide
    the intermediate dimension.
    """
    y = chosen_experts(weights, prefix, x, route(weights, prefix, x, experts), experts)
    if not experts.shared:
        return y
    name = f"{prefix}.{experts.shared_name}"
    return ops.add(y, mlp(weights, name, x, experts.shared, experts.kind, experts.shared_parts))


def route(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> tuple[Tensor, Tensor]:
    """x [N, H] -> the experts that each row chooses, and their shares: i32 and f32 [N, choices].

    Weights: the router and its bias.
    """
    bias = None
    if experts.bias is not None:
        bias = weights.vector(f"{prefix}.{experts.bias}", experts.count)
    return choose(weights, f"{prefix}.{experts.router}", x, experts, bias)


def chosen_experts(
    weights: Weights, prefix: str, x: Tensor, chosen: tuple[Tensor, Tensor], experts: Experts
) -> Tensor:
    """x [N, H] and what `route` returns -> the weighted sum of each row's experts, [N, H].

    Weights: `<prefix>.experts`, or two stacks of all together.
    """
    if weights.has(f"{prefix}.{_STACKS.up}"):
        return packed_experts(weights, prefix, x, chosen, experts, _STACKS)
    names, count, inner = f"{prefix}.experts", experts.count, experts.intermediate
    part = weights.shard.part(inner, _block_elements(weights, names, experts.down))
    wide = (count, inner, x.width)
    modules = (experts.gate, experts.up)
    wide_stacks = [weights.stack(names, name, wide, rows=part) for name in modules if name]
    down = weights.stack(names, experts.down, (count, x.width, inner), columns=part)
    y = run_experts(x, chosen, wide_stacks, down, experts.kind)
    return y if part.whole else ops.all_reduce(y, shard=weights.shard)


def gated_expert(
    weights: Weights, prefix: str, x: Tensor, intermediate: int, kind: ops.ActivationKind
) -> Tensor:
    """x [N, H] -> sigmoid(gate(x)) times a feed-forward layer that every token has, [N, H].

    Weights: the layer `<prefix>`, and `<prefix>_gate` with one row.
    """
    logits = linear(weights, f"{prefix}_gate", x, (1,), dtype="f32")
    # The router of one expert chooses it, with its sigmoid as the weight.
    _, share = ops.moe_route(logits, ops.Routing(1, scoring=ops.Scoring.SIGMOID))
    y = mlp(weights, prefix, x, intermediate, kind, row_shape=(1, x.width))
    return ops.moe_combine(y, share)


@dataclass(frozen=True, slots=True)
class PackedNames:
    """The router, and the stacks of all experts: the rows of gate and then of up, and down."""

    router: str = "router.layer"
    up: str = "input_linear"
    down: str = "output_linear"


_STACKS = PackedNames("gate", "experts.gate_up_proj", "experts.down_proj")


def packed_moe(
    weights: Weights,
    prefix: str,
    x: Tensor,
    experts: Experts,
    names: PackedNames = PackedNames(),
) -> Tensor:
    """As `moe`, with the router and stacks of all experts under `names` in `prefix`."""
    chosen = choose(weights, f"{prefix}.{names.router}", x, experts)
    return packed_experts(weights, prefix, x, chosen, experts, names)


def packed_experts(
    weights: Weights,
    prefix: str,
    x: Tensor,
    chosen: tuple[Tensor, Tensor],
    experts: Experts,
    names: PackedNames = PackedNames(),
) -> Tensor:
    """As `chosen_experts`, with stacks of all experts under `names` in `prefix`."""
    count, inner = experts.count, experts.intermediate
    part = weights.shard.part(inner, weights.block_elements(f"{prefix}.{names.down}.weight"))
    wide = (count, 2 * inner, x.width)
    wide_stacks = [
        weights.stack(
            prefix, names.up, wide, rows=Part(first + part.begin, first + part.end, 2 * inner)
        )
        for first in (0, inner)
    ]
    down = weights.stack(prefix, names.down, (count, x.width, inner), columns=part)
    y = run_experts(x, chosen, wide_stacks, down, experts.kind)
    return y if part.whole else ops.all_reduce(y, shard=weights.shard)


def choose(
    weights: Weights,
    name: str,
    x: Tensor,
    experts: Experts,
    bias: Tensor | None = None,
    factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x [N, H] -> what `route` returns, by the router `name`; `bias` and `factors` are those of
    `ops.moe_route`."""
    logits = linear(weights, name, x, (experts.count,), dtype="f32")
    if experts.logits_cap:
        bounded = ops.scale(logits, 1 / experts.logits_cap)
        logits = ops.scale(ops.activation(bounded, ops.ActivationKind.TANH), experts.logits_cap)
    ids, shares = ops.moe_route(logits, experts.routing, bias, factors)
    return name_in_layer(ids, EXPERTS), shares


def run_experts(
    x: Tensor,
    chosen: tuple[Tensor, Tensor],
    wide_stacks: Sequence[Tensor],
    down: Tensor,
    kind: ops.ActivationKind,
) -> Tensor:
    """x [N, H] and what `route` returns -> the weighted sum of each row's experts, [N, H].
    `wide_stacks` are gate and up, or up, of all experts, `down` their down; or this rank's part of
    each."""
    ids, shares = chosen
    first, *rest = ops.grouped_linear(x, ids, *wide_stacks)
    y = ops.gated_activation(first, rest[0], kind) if rest else ops.activation(first, kind)
    (y,) = ops.grouped_linear(y, ids, down)
    return ops.moe_combine(y, shares)


def _block_elements(weights: Weights, experts: str, module: str) -> int:
    stacked = f"{experts}.{module}.weight"
    return weights.block_elements(
        stacked if weights.has(stacked) else f"{experts}.0.{module}.weight"
    )
