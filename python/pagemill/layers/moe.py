"""Mixture of experts: a router chooses, for each token, some of many gated feed-forward layers."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` gated feed-forward layers of `intermediate` features, under the names of their
    modules, chosen by `routing`."""

    count: int
    intermediate: int
    kind: ops.ActivationKind
    routing: ops.Routing
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


def moe(weights: Weights, prefix: str, x: Tensor, experts: Experts) -> Tensor:
    """x [N, H] -> the weighted sum of down(act(gate(x)) * up(x)) of each token's experts, [N, H].

    Weights: the router `<prefix>.gate` and `<prefix>.experts`, of which ranks divide the
    intermediate dimension.
    """
    logits = linear(weights, f"{prefix}.gate", x, (experts.count,), dtype="f32")
    ids, shares = ops.moe_route(logits, experts.routing)
    names, count, inner = f"{prefix}.experts", experts.count, experts.intermediate
    part = weights.shard.part(inner, _block_elements(weights, names, experts.down))
    wide = (count, inner, x.width)
    gate = weights.stack(names, experts.gate, wide, rows=part)
    up = weights.stack(names, experts.up, wide, rows=part)
    gate_y, up_y = ops.grouped_linear(x, ids, gate, up)
    hidden = ops.gated_activation(gate_y, up_y, experts.kind)
    down = weights.stack(names, experts.down, (count, x.width, inner), columns=part)
    (down_y,) = ops.grouped_linear(hidden, ids, down)
    y = ops.moe_combine(down_y, shares)
    return y if part.whole else ops.all_reduce(y, shard=weights.shard)


def _block_elements(weights: Weights, experts: str, module: str) -> int:
    stacked = f"{experts}.{module}.weight"
    return weights.block_elements(
        stacked if weights.has(stacked) else f"{experts}.0.{module}.weight"
    )
