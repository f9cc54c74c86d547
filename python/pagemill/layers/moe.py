"""Mixture of experts: a router chooses, for each token, some of many gated feed-forward layers."""

from __future__ import annotations

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
    """`count` gated feed-forward layers of `intermediate` features, under the names of their
    modules, chosen by `routing` of the `router`'s logits. `bias` names the vector that is added to
    scores for the choice, if there is one; `shared` are the features of the layer `shared_name`,
    which every token has, 0 for none.
    """

    count: int
    intermediate: int
    kind: ops.ActivationKind
    routing: ops.Routing
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    router: str = "gate"
    bias: str | None = None
    shared: int = 0
    shared_name: str = "shared_experts"
    shared_parts: MlpParts = MlpParts()


def moe(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> Tensor:
    """x [N, H] -> the weighted sum of down(act(gate(x)) * up(x)) of each token's experts, [N, H],
    plus the shared experts.

    Weights: the router and its bias, `<prefix>.experts` and the shared layer, of which ranks divide
    the intermediate dimension.
    """
    bias = None
    if experts.bias is not None:
        bias = weights.vector(f"{prefix}.{experts.bias}", experts.count)
    ids, shares = _route(weights, f"{prefix}.{experts.router}", x, experts, bias)
    names, count, inner = f"{prefix}.experts", experts.count, experts.intermediate
    part = weights.shard.part(inner, _block_elements(weights, names, experts.down))
    wide = (count, inner, x.width)
    gate = weights.stack(names, experts.gate, wide, rows=part)
    up = weights.stack(names, experts.up, wide, rows=part)
    down = weights.stack(names, experts.down, (count, x.width, inner), columns=part)
    y = _combine(x, ids, shares, (gate, up, down), experts.kind)
    y = y if part.whole else ops.all_reduce(y, shard=weights.shard)
    if not experts.shared:
        return y
    name = f"{prefix}.{experts.shared_name}"
    return ops.add(y, mlp(weights, name, x, experts.shared, experts.kind, experts.shared_parts))


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


def packed_moe(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> Tensor:
    """As `moe`, with the router `<prefix>.router.layer` and stacks of all experts: the rows of gate
    and then of up in `<prefix>.input_linear`, down in `<prefix>.output_linear`."""
    ids, shares = _route(weights, f"{prefix}.router.layer", x, experts)
    count, inner = experts.count, experts.intermediate
    part = weights.shard.part(inner, weights.block_elements(f"{prefix}.output_linear.weight"))
    wide = (count, 2 * inner, x.width)
    gate, up = (
        weights.stack(
            prefix,
            "input_linear",
            wide,
            rows=Part(first + part.begin, first + part.end, 2 * inner),
        )
        for first in (0, inner)
    )
    down = weights.stack(prefix, "output_linear", (count, x.width, inner), columns=part)
    y = _combine(x, ids, shares, (gate, up, down), experts.kind)
    return y if part.whole else ops.all_reduce(y, shard=weights.shard)


def _route(
    weights: Weights, name: str, x: Tensor, experts: Experts, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    logits = linear(weights, name, x, (experts.count,), dtype="f32")
    ids, shares = ops.moe_route(logits, experts.routing, bias)
    return name_in_layer(ids, EXPERTS), shares


def _combine(
    x: Tensor,
    ids: Tensor,
    shares: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor],
    kind: ops.ActivationKind,
) -> Tensor:
    """`matrices` are gate, up and down of all experts, or this rank's part of each."""
    gate, up, down = matrices
    gate_y, up_y = ops.grouped_linear(x, ids, gate, up)
    (down_y,) = ops.grouped_linear(ops.gated_activation(gate_y, up_y, kind), ids, down)
    return ops.moe_combine(down_y, shares)


def _block_elements(weights: Weights, experts: str, module: str) -> int:
    stacked = f"{experts}.{module}.weight"
    return weights.block_elements(
        stacked if weights.has(stacked) else f"{experts}.0.{module}.weight"
    )
