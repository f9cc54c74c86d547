"""`latent_attention`: multi-head latent attention of the step's queries, in its absorbed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pagemill.ops.checks import last_dim, require_act, require_dtype, require_rank
from pagemill.ops.latent_write import row_attributes
from pagemill.ops.program import Shape
from pagemill.ops.trace import Cache, Operand, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchLatentCache, TorchStep


def latent_attention(
    q: Tensor, rope: Tensor | None, cache: Cache, *, scale: float, chosen: Tensor | None = None
) -> Tensor:
    """q [T, H, R], rope [T, H, P] -> softmax((q c^T + rope k^T) scale) c, [T, H, R].

    c and k are the cached latents and rotated keys of the request's tokens up to the query's, or of
    those at the positions `chosen`, i32 [T, K], that `select_tokens` returns.
    Queries are absorbed: they are already multiplied by the key projection of their head; the value
    projection follows later. The step's own tokens must have been written before. Of a cache
    with a window those in the window are seen; of one with a row for m tokens, rows in place of
    tokens, each from the last of its tokens on.

    Raises:
        ShapeError: the operands do not fit.
    """
    return _emit(q, rope, cache, scale, chosen, [(q.shape, q.dtype)])[0]


def latent_attention_with_sums(
    q: Tensor, rope: Tensor | None, cache: Cache, *, scale: float, chosen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As `latent_attention`, and the logarithm of each sum of e^score, f32 [T, H], for
    `merge_attention`; -infinity, and a result of zeros, for a query that sees nothing.

    Raises:
        ShapeError: the operands do not fit.
    """
    results = [(q.shape, q.dtype), (q.shape[:-1], "f32")]
    y, lse = _emit(q, rope, cache, scale, chosen, results)
    return y, lse


def _emit(
    q: Tensor,
    rope: Tensor | None,
    cache: Cache,
    scale: float,
    chosen: Tensor | None,
    results: Sequence[tuple[Shape, str]],
) -> Sequence[Tensor]:
    parts = [q] if rope is None else [q, rope]
    for part in parts:
        require_act("latent_attention", q=part)
    require_rank("latent_attention", "q", q, 3)
    width = sum(last_dim("latent_attention", "q", part) for part in parts)
    same_heads = all(part.shape[:-1] == q.shape[:-1] for part in parts)
    if not same_heads or cache.layout != "latent" or cache.dims[0] != width:
        shapes = " and ".join(format_shape(part.shape) for part in parts)
        raise ShapeError(
            f"latent_attention: {cache.name} holds {cache.layout} {cache.dims}, q and rope are"
            f" {shapes}"
        )
    operands: list[Operand] = [q, rope, cache]
    if chosen is not None:
        require_dtype("latent_attention", "chosen", chosen, ("i32",))
        require_rank("latent_attention", "chosen", chosen, 2)
        if chosen.rows != q.rows:
            raise ShapeError(
                f"latent_attention: q is {format_shape(q.shape)}, chosen"
                f" {format_shape(chosen.shape)}"
            )
        operands.append(chosen)
    attributes = [("scale", scale), *row_attributes(cache)]
    if cache.window:
        attributes.append(("window", float(cache.window)))
    if len(results) > 1:
        attributes.append(("sums", 1))
    return q.trace.emit("latent_attention", operands, results, attributes)


def reference(
    inputs: Sequence[Any],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> tuple[torch.Tensor, ...]:
    """The op in torch: requests with one token together, each longer one by itself."""
    import torch

    q, rope, cache = cast(
        "tuple[torch.Tensor, torch.Tensor | None, TorchLatentCache]", tuple(inputs[:3])
    )
    chosen: torch.Tensor | None = inputs[3] if len(inputs) > 3 else None
    size, scale = q.shape[-1], attributes["scale"]
    window = int(attributes.get("window", 0))
    queries = (q if rope is None else torch.cat([q, rope], -1)).float()
    output = torch.empty_like(q)
    sums = torch.empty(q.shape[:-1], device=q.device)

    def seen_at(positions: torch.Tensor, context: int) -> torch.Tensor:
        """Which of the rows of a context tokens see at these positions [L, 1]: [L, C]."""
        rows, end = torch.arange(context, device=q.device), cache.visible(positions)
        return (rows < end) & (rows >= end - window) if window else rows < end

    def sees(rows: torch.Tensor | slice, visible: torch.Tensor) -> torch.Tensor:
        """visible [L, C] of these rows -> of it, what they have chosen."""
        if chosen is None:
            return visible
        among = torch.zeros(len(visible), visible.shape[1] + 1, dtype=torch.bool, device=q.device)
        # Positions of -1 go to one more column.
        return visible & among.scatter(1, chosen[rows].long() % among.shape[1], True)[:, :-1]

    def attend(
        rows: torch.Tensor, slots: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """rows [B, L, H, W], slots [B, C], visible [B, L, C] -> [B, L, H, R], [B, L, H]."""
        context = cache.read(slots)
        scores = torch.einsum("blhw,bcw->blhc", rows, context) * scale
        scores = scores.masked_fill(~visible[:, :, None], -torch.inf)
        nothing = ~visible.any(-1)[:, :, None, None]
        weights = scores.softmax(-1).masked_fill(nothing, 0)
        y = torch.einsum("blhc,bcr->blhr", weights, context[..., :size])
        return y.to(q.dtype), scores.logsumexp(-1)

    table = step.tables[cache.table]
    if step.decode is not None and table.decode_slots is not None:
        group, slots = step.decode, cache.rows_of(table.decode_slots)
        visible = sees(group.rows, seen_at(group.positions, slots.shape[1]))
        y, lse = attend(queries[group.rows, None], slots, visible[:, None])
        output[group.rows], sums[group.rows] = y[:, 0], lse[:, 0]
    for span, slots_of_tokens in zip(step.prefills, table.prefill_slots, strict=True):
        slots, part = cache.rows_of(slots_of_tokens), slice(span.begin, span.end)
        positions = torch.arange(
            span.context - span.end + span.begin, span.context, device=q.device
        )
        visible = sees(part, seen_at(positions[:, None], len(slots)))
        y, lse = attend(queries[None, part], slots[None], visible[None])
        output[part], sums[part] = y[0], lse[0]
    return (output, sums) if attributes.get("sums") else (output,)
