"""`select_tokens`: the tokens that each query of sparse attention attends to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act, require_dtype, require_rank
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchLatentCache, TorchStep


def select_tokens(
    q: Tensor, rope: Tensor | None, weights: Tensor, cache: Cache, *, choices: int
) -> Tensor:
    """q [T, H, R], rope [T, H, P], weights f32 [T, H] -> the positions of the best tokens of each
    query, ascending, -1 behind them if it sees fewer: i32 [T, choices].

    The score of a token up to the query's position is the sum over heads of weights times
    max(0, q c + rope k), c and k being the parts of its cached index key. Among equal scores the
    lower position wins. The step's own keys must have been written before, by `latent_write`. Of a
    cache with a row for m tokens, rows are chosen in place of tokens.

    Raises:
        ShapeError: the operands do not fit.
    """
    parts = [q] if rope is None else [q, rope]
    for part in parts:
        require_act("select_tokens", q=part)
    require_dtype("select_tokens", "weights", weights, ("f32",))
    require_rank("select_tokens", "q", q, 3)
    width = sum(last_dim("select_tokens", "q", part) for part in parts)
    same_heads = all(part.shape[:-1] == weights.shape for part in parts)
    if not same_heads or cache.layout != "latent" or cache.dims[0] != width:
        raise ShapeError(
            f"select_tokens: {cache.name} holds {cache.layout} {cache.dims}, q, rope and weights"
            f" are {', '.join(format_shape(t.shape) for t in (*parts, weights))}"
        )
    if choices < 1:
        raise ShapeError(f"select_tokens: {choices} tokens cannot be chosen")
    operands = [q, rope, weights, cache]
    results = [((q.rows, choices), "i32")]
    return q.trace.emit("select_tokens", operands, results, [("choices", choices)])[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, TorchLatentCache],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> tuple[torch.Tensor, ...]:
    """The op in torch: requests with one token together, each longer one by itself. Sorts are
    stable, so the lower of equal tokens wins."""
    import torch

    q, rope, weights, cache = inputs
    choices = int(attributes["choices"])
    queries = (q if rope is None else torch.cat([q, rope], -1)).float()
    chosen = torch.full((len(q), choices), -1, dtype=torch.int32, device=q.device)

    def choose(rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """rows [L] of the step; slots [C] or [L, C] of their contexts, positions [L]."""
        keys = cache.read(cache.rows_of(slots))
        terms = "lhw,cw->lch" if keys.ndim == 2 else "lhw,lcw->lch"
        products = torch.einsum(terms, queries[rows], keys)
        scores = torch.einsum("lch,lh->lc", products.relu(), weights[rows].float())
        scores = scores.masked_fill(scores.isnan(), -torch.inf)
        context = torch.arange(scores.shape[1], device=q.device)
        unseen = context >= cache.visible(positions)[:, None]
        # Unseen tokens behind all others, also behind those of -infinity.
        order = scores.masked_fill(unseen, -torch.inf).argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, unseen.gather(1, order).int().argsort(dim=1, stable=True))
        best = order[:, :choices]
        best = best.masked_fill(unseen.gather(1, best), len(context)).sort(dim=1).values
        best = best.masked_fill(best == len(context), -1)
        chosen[rows, : best.shape[1]] = best.to(torch.int32)

    table = step.tables[cache.table]
    if step.decode is not None and table.decode_slots is not None:
        choose(step.decode.rows, table.decode_slots, step.decode.positions.flatten())
    for span, slots in zip(step.prefills, table.prefill_slots, strict=True):
        rows = torch.arange(span.begin, span.end, device=q.device)
        choose(rows, slots, rows - span.end + span.context)
    return (chosen,)
