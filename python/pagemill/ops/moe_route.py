"""`moe_route`: selects the experts of each token and their weights from a router's logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype, require_f32, require_rank, require_vector
from pagemill.ops.trace import Operand, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


class Scoring(IntEnum):
    """The function from logits to scores; softmax is over all experts, SparseMixer's over those
    near each choice; SQRT_SOFTPLUS is the square root of ln(1 + e^logit)."""

    SOFTMAX = 0
    SIGMOID = 1
    SPARSE_MIXER = 2
    SQRT_SOFTPLUS = 3


@dataclass(frozen=True, slots=True)
class Routing:
    """How a router chooses (`cc/ops/moe_route/moe_route.h` has the formulas).

    `choices` experts per token; `renormalize`: their weights are divided by their sum; `scale`
    multiplies the result. Experts form `groups` of equal size and are chosen from `group_choices`
    of them (0 = all); the score of a group is the sum of its `group_top` best experts. `tolerance`
    is how far from a choice, relatively, SparseMixer's experts are; it has no groups and no bias.
    `logits_bias`: biases are added to logits, not to scores.
    """

    choices: int
    scoring: Scoring = Scoring.SOFTMAX
    renormalize: bool = False
    scale: float = 1.0
    groups: int = 1
    group_choices: int = 0
    group_top: int = 1
    tolerance: float = 0.0
    logits_bias: bool = False

    def attributes(self) -> list[tuple[str, float]]:
        """The op's attributes, without defaults."""
        named: list[tuple[str, float]] = [
            ("choices", self.choices),
            ("scoring", int(self.scoring)),
        ]
        if self.tolerance:
            named.append(("tolerance", self.tolerance))
        if self.logits_bias:
            named.append(("logits_bias", 1))
        if self.renormalize:
            named.append(("renormalize", 1))
        if self.scale != 1.0:
            named.append(("scale", self.scale))
        if self.groups > 1:
            named += [
                ("groups", self.groups),
                ("group_choices", self.group_choices or self.groups),
                ("group_top", self.group_top),
            ]
        return named


def moe_route(
    logits: Tensor,
    routing: Routing,
    bias: Tensor | None = None,
    factors: Tensor | None = None,
    *,
    table: tuple[Tensor, Tensor] | None = None,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """logits f32 [N, experts], bias and factors f32 [experts] -> ids i32 and weights f32 [N,
    choices].

    `bias` is added to scores, or logits, for the choice, not for the weights; `factors` multiply
    the weights of each expert. `table` are token ids i32 [N] and the experts of each id, f32
    [vocabulary, choices], which are taken whatever the logits. Ids count from the expert `first`:
    those before it are negative.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_dtype("moe_route", "logits", logits, ("f32",))
    require_rank("moe_route", "logits", logits, 2)
    experts = logits.width
    require_vector("moe_route", "bias", bias, experts)
    require_vector("moe_route", "factors", factors, experts)
    if routing.groups < 1 or experts % routing.groups:
        raise ShapeError(f"moe_route: {experts} experts do not make {routing.groups} groups")
    mixes = routing.scoring == Scoring.SPARSE_MIXER
    if mixes and (routing.groups > 1 or bias is not None):
        raise ShapeError("moe_route: SparseMixer has no groups and no bias")
    available = experts // routing.groups * (routing.group_choices or routing.groups)
    if not 1 <= routing.choices <= available <= experts:
        raise ShapeError(f"moe_route: cannot choose {routing.choices} of {available} experts")
    if not 0 <= first < experts:
        raise ShapeError(f"moe_route: ids cannot count from expert {first} of {experts}")
    shape = (logits.rows, routing.choices)
    operands: list[Operand] = [logits, bias]
    if factors is not None or table is not None:
        operands.append(factors)
    if table is not None:
        token_ids, experts_of = table
        require_dtype("moe_route", "token_ids", token_ids, ("i32",))
        require_f32("moe_route", table=experts_of)
        if routing.groups > 1 or bias is not None or mixes:
            raise ShapeError("moe_route: with a table there are no groups, no bias, no SparseMixer")
        if experts_of.shape[1:] != (routing.choices,) or token_ids.shape != (logits.rows,):
            raise ShapeError(
                f"moe_route: the table is {format_shape(experts_of.shape)}, its token ids"
                f" {format_shape(token_ids.shape)}"
            )
        operands += [token_ids, experts_of]
    attributes = routing.attributes()
    if first:
        attributes.append(("first", first))
    ids, weights = logits.trace.emit(
        "moe_route", operands, [(shape, "i32"), (shape, "f32")], attributes
    )
    return ids, weights


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in f32: sorts are stable, so the lower of equal experts wins."""
    import torch

    del step
    assert inputs[0] is not None
    logits, bias = inputs[0].float(), inputs[1]
    scoring = attributes["scoring"]
    if scoring == Scoring.SQRT_SOFTPLUS:
        scores = torch.nn.functional.softplus(logits).sqrt()
    else:
        scores = logits.sigmoid() if scoring == Scoring.SIGMOID else logits.softmax(-1)
    plain = logits if bias is None or attributes.get("logits_bias") else scores
    keys = _ordered(plain if bias is None else plain + bias.float())
    order = torch.argsort(keys, dim=-1, descending=True, stable=True)
    if attributes.get("groups", 1) > 1:
        worth = _ordered(scores) if bias is None else keys
        left_out = _left_out(worth, attributes)
        # Experts of other groups are sorted last; the order of the rest is kept.
        behind = torch.argsort(left_out.gather(1, order).int(), dim=-1, stable=True)
        order = order.gather(1, behind)
    ids, known = order[:, : int(attributes["choices"])], True
    if len(inputs) > 3:
        assert inputs[3] is not None and inputs[4] is not None
        listed = inputs[4][inputs[3]]
        exists = (listed > -1) & (listed < logits.shape[1])
        ids, known = torch.where(exists, listed, 0).long(), exists.all(-1, keepdim=True)
    if scoring == Scoring.SPARSE_MIXER:
        weights = _mixed(logits, ids, attributes.get("tolerance", 0.0))
    else:
        weights = scores.gather(1, ids)
    if attributes.get("renormalize", 0):
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    defined = torch.isfinite(logits.amax(-1, keepdim=True)) & known  # NaN if a logit is
    weights = torch.where(defined, weights * attributes.get("scale", 1.0), torch.nan)
    if len(inputs) > 2 and inputs[2] is not None:
        weights = weights * inputs[2].float()[ids]
    return ids.to(torch.int32) - int(attributes.get("first", 0)), weights


def _mixed(logits: torch.Tensor, ids: torch.Tensor, tolerance: float) -> torch.Tensor:
    """SparseMixer's scores of the choices, [N, choices]: each among those left that are near it."""
    import torch

    left, scores = logits, list[torch.Tensor]()
    for choice_number in range(ids.shape[1]):
        chosen = ids[:, choice_number : choice_number + 1]
        choice = logits.gather(1, chosen)
        far = choice - logits > tolerance * logits.abs().maximum(choice)
        near = left.masked_fill(far, float("-inf")).softmax(-1).gather(1, chosen)
        scores.append(near.masked_fill(choice.isinf(), torch.nan))
        left = left.scatter(1, chosen, float("-inf"))
    return torch.cat(scores, 1)


def _ordered(keys: torch.Tensor) -> torch.Tensor:
    """`keys` with -infinity for NaN, which cannot be ordered."""
    return keys.masked_fill(keys.isnan(), float("-inf"))


def _left_out(worth: torch.Tensor, attributes: Mapping[str, float]) -> torch.Tensor:
    """True for experts that are in none of the best groups, [N, experts]."""
    import torch

    groups, top = int(attributes["groups"]), int(attributes.get("group_top", 1))
    chosen = int(attributes.get("group_choices", groups))
    by_group = worth.reshape(worth.shape[0], groups, -1)
    best = by_group.sort(-1, descending=True).values[..., :top].sum(-1)
    kept = torch.argsort(best, dim=-1, descending=True, stable=True)[:, :chosen]
    left_out = torch.ones_like(best, dtype=torch.bool).scatter(1, kept, False)
    return left_out.repeat_interleave(by_group.shape[-1], dim=1)
