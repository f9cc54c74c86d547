"""Mixture of experts: a router chooses, for each token, some of many gated feed-forward layers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, gated, mlp
from pagemill.layers.stack import EXPERTS, name_in_layer
from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.shard import Part, Shard
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` feed-forward layers of `intermediate` features, under the names of their modules,
    chosen by `routing` of the `router`'s logits; without gates if `gate` is None. `bias` names the
    vector that is added to scores for the choice, if there is one; `logits_cap` bounds logits to
    cap * tanh(logit / cap), 0 leaves them; `shared` are the features of the layer `shared_name`,
    which every token has, 0 for none; `limit` and `limit_activated` are those of `MlpParts`, of the
    others. If a checkpoint has `stored` experts, more than `count`, these are behind the `first`.
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
    limit: float = 0.0
    limit_activated: bool = False
    first: int = 0
    stored: int = 0

    def own(self, shard: Shard) -> Part:
        """Those that a rank has, among all that are stored."""
        part = shard.experts(self.count)
        stored = self.stored or self.count
        return Part(self.first + part.begin, self.first + part.end, stored)


def moe(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> Tensor:
    """x [N, H] -> the weighted sum of down(act(gate(x)) * up(x)) of each token's experts, [N, H],
    plus the shared experts.

    Weights: the router and its bias, `<prefix>.experts` and the shared layer. Ranks divide the
    intermediate dimension of both, or the experts (`Shard.whole_experts`) and that of the shared.
    """
    y = chosen_experts(weights, prefix, x, route(weights, prefix, x, experts), experts)
    if not experts.shared:
        return y
    name = f"{prefix}.{experts.shared_name}"
    return ops.add(y, mlp(weights, name, x, experts.shared, experts.kind, experts.shared_parts))


def route(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> tuple[Tensor, Tensor]:
    """x [N, H] -> the experts that each row chooses, counted from the first that this rank has, and
    their shares: i32 and f32 [N, choices].

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

    Weights: `<prefix>.experts`, or two stacks of all together; or of each rank that the checkpoint
    was saved by, the experts' modules with its part of their features, `<module>.rank<i>`.
    """
    if weights.has(f"{prefix}.{_STACKS.up}"):
        return packed_experts(weights, prefix, x, chosen, experts, _STACKS)
    modules = [name for name in (experts.gate, experts.up) if name]
    names, saved = f"{prefix}.experts", _saved_parts(weights, f"{prefix}.experts", experts)
    block = _block_elements(weights, names, f"{experts.down}{saved[0][0]}")
    shard = weights.shard
    matrices, part = experts.own(shard), shard.expert_features(experts.intermediate, block)
    sums: list[Tensor] = []
    for rank, stored in saved:
        begin, end = max(part.begin, stored.begin), min(part.end, stored.end)
        if begin >= end:
            for module in (*modules, experts.down):
                for i in range(matrices.total):
                    weights.claim(f"{names}.{i}.{module}{rank}.weight")
            continue
        own = Part(begin - stored.begin, end - stored.begin, stored.size)
        shape = (matrices.total, own.total, x.width)
        wide = [
            weights.stack(names, f"{name}{rank}", shape, matrices=matrices, rows=own)
            for name in modules
        ]
        shape, name = (matrices.total, x.width, own.total), f"{experts.down}{rank}"
        down = weights.stack(names, name, shape, matrices=matrices, columns=own)
        adapted = _Adapted(weights, experts, Part(begin, end, part.total), prefix)
        sums.append(run_experts(x, chosen, wide, down, experts, adapted))
    return sum_of_ranks(weights, functools.reduce(ops.add, sums))


def sum_of_ranks(weights: Weights, y: Tensor) -> Tensor:
    """The sum of what each rank computes of the experts, [N, H]."""
    return y if weights.shard.ranks == 1 else ops.all_reduce(y, shard=weights.shard)


def _saved_parts(weights: Weights, names: str, experts: Experts) -> list[tuple[str, Part]]:
    """What is behind the names of the experts' modules, and which of their features are there: all,
    or those that each rank has saved."""
    total, module = experts.intermediate, f"{names}.0.{experts.down}"
    ranks = 0
    while weights.has(f"{module}.rank{ranks}.weight"):
        ranks += 1
    if not ranks:
        return [("", Part(0, total, total))]
    size = total // ranks
    return [(f".rank{i}", Part(i * size, (i + 1) * size, total)) for i in range(ranks)]


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
    """The router, and the stacks of all experts: the rows of gate and then of up, and down. Stacks
    that are `turned` are parameters of the whole name, stored as [experts, in, out]."""

    router: str = "router.layer"
    up: str = "input_linear"
    down: str = "output_linear"
    turned: bool = False


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
    shard = weights.shard
    block = 1 if names.turned else weights.block_elements(f"{prefix}.{names.down}.weight")
    matrices, part = shard.experts(count), shard.expert_features(inner, block)

    def stack(
        name: str, out: int, features: int, rows: Part | None = None, columns: Part | None = None
    ) -> Tensor:
        shape = (count, out, features)
        if names.turned:
            return weights.turned_stack(
                f"{prefix}.{name}", shape, matrices=matrices, rows=rows, columns=columns
            )
        return weights.stack(prefix, name, shape, matrices=matrices, rows=rows, columns=columns)

    wide_stacks = [
        stack(names.up, 2 * inner, x.width, rows=part.within(2 * inner, first))
        for first in (0, inner)
    ]
    down = stack(names.down, x.width, inner, columns=part)
    adapted = _Adapted(weights, experts, part, prefix, names)
    return sum_of_ranks(weights, run_experts(x, chosen, wide_stacks, down, experts, adapted))


def choose(
    weights: Weights,
    name: str,
    x: Tensor,
    experts: Experts,
    bias: Tensor | None = None,
    factors: Tensor | None = None,
    table: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """x [N, H] -> what `route` returns, by the router `name`; `bias`, `factors` and `table` are
    those of `ops.moe_route`."""
    logits = linear(weights, name, x, (experts.count,), dtype="f32")
    if experts.logits_cap:
        bounded = ops.scale(logits, 1 / experts.logits_cap)
        logits = ops.scale(ops.activation(bounded, ops.ActivationKind.TANH), experts.logits_cap)
    first = weights.shard.experts(experts.count).begin
    ids, shares = ops.moe_route(logits, experts.routing, bias, factors, table=table, first=first)
    return name_in_layer(ids, EXPERTS), shares


@dataclass(frozen=True, slots=True)
class _Adapted:
    """Applies adapters to the layers of experts in `prefix`, of which this rank computes the `part`
    of the features. They know them as modules of single experts, or by the parameters `names` of
    all."""

    weights: Weights
    experts: Experts
    part: Part
    prefix: str
    names: PackedNames = _STACKS

    def wide(self, ids: Tensor, x: Tensor, ys: Sequence[Tensor]) -> list[Tensor]:
        """What gate and up, or up, make of x."""
        modules = [name for name in (self.experts.gate, self.experts.up) if name]
        part, total = self.part, len(modules) * self.part.total
        adapted: list[Tensor] = []
        for i, (module, y) in enumerate(zip(modules, ys, strict=True)):
            first = i * part.total
            name = self.names.up if self.experts.gate else f"experts.{self.experts.up}"
            rows = Part(first + part.begin, first + part.end, total)
            layer = self._layer(module, name, rows, x.width)
            adapted.append(self.weights.adapted_experts(layer, ids, x, y, rows=part))
        return adapted

    def down(self, ids: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """What down makes of x."""
        width = y.width // ids.width
        rows = Part(0, width, width)
        layer = self._layer(self.experts.down, self.names.down, rows, self.part.total)
        return self.weights.adapted_experts(layer, ids, x, y, columns=self.part)

    def _layer(self, module: str, fused: str, rows: Part, features: int) -> ExpertLayer:
        # A stack that is a module by itself has the parameter `weight`.
        owner, dot, parameter = fused.rpartition(".")
        if not dot:
            owner, parameter = fused, "weight"
        return ExpertLayer(
            experts=self.experts.own(self.weights.shard),
            container=f"{self.prefix}.experts",
            module=module,
            owner=f"{self.prefix}.{owner}",
            parameter=parameter,
            rows=rows,
            features=features,
            turned=self.names.turned,
        )


def run_experts(
    x: Tensor,
    chosen: tuple[Tensor, Tensor],
    wide_stacks: Sequence[Tensor],
    down: Tensor,
    experts: Experts,
    adapted: _Adapted | None = None,
) -> Tensor:
    """x [N, H] and what `route` returns -> the weighted sum of each row's experts, [N, H].
    `wide_stacks` are gate and up, or up, of all experts, `down` their down; or this rank's part of
    each."""
    ids, shares = chosen
    wide: Sequence[Tensor] = ops.grouped_linear(x, ids, *wide_stacks)
    if adapted is not None:
        wide = adapted.wide(ids, x, wide)
    first, *rest = wide
    if rest:
        limit, activated = experts.limit, experts.limit_activated
        inner = gated(first, rest[0], experts.kind, limit=limit, limit_activated=activated)
    else:
        inner = ops.activation(first, experts.kind)
    (y,) = ops.grouped_linear(inner, ids, down)
    if adapted is not None:
        y = adapted.down(ids, inner, y)
    return ops.moe_combine(y, shares)


def _block_elements(weights: Weights, experts: str, module: str) -> int:
    stacked = f"{experts}.{module}.weight"
    return weights.block_elements(
        stacked if weights.has(stacked) else f"{experts}.0.{module}.weight"
    )
