"""`latent_attention`: multi-head latent attention of the step's queries, in its absorbed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pagemill.ops.checks import last_dim, require_act, require_dtype, require_rank
from pagemill.ops.trace import Cache, Operand, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchLatentCache, TorchStep


def latent_attention(
    q: Tensor, rope: Tensor, cache: Cache, *, scale: float, chosen: Tensor | None = None
) -> Tensor:
    """q [T, H, R], rope [T, H, P] -> softmax((q c^T + rope k^T) scale) c, [T, H, R].

    c and k are the cached latents and rotated keys of the request's tokens up to the query's, or of
    those at the positions `chosen`, i32 [T, K], that `select_tokens` returns.
    Queries are absorbed: they are already multiplied by the key projection of their head; the value
    projection follows later. The step's own tokens must have been written before.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("latent_attention", q=q, rope=rope)
    require_rank("latent_attention", "q", q, 3)
    width = last_dim("latent_attention", "q", q) + last_dim("latent_attention", "rope", rope)
    same_heads = rope.shape[:-1] == q.shape[:-1]
    if not same_heads or cache.layout != "latent" or cache.dims != (width,):
        raise ShapeError(
            f"latent_attention: {cache.name} holds {cache.layout} {cache.dims}, q and rope are"
            f" {format_shape(q.shape)} and {format_shape(rope.shape)}"
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
    results = [(q.shape, q.dtype)]
    return q.trace.emit("latent_attention", operands, results, [("scale", scale)])[0]


def reference(
    inputs: Sequence[Any],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> tuple[torch.Tensor, ...]:
    """The op in torch: requests with one token together, each longer one by itself."""
    import torch

    q, rope, cache = cast("tuple[torch.Tensor, torch.Tensor, TorchLatentCache]", tuple(inputs[:3]))
    chosen: torch.Tensor | None = inputs[3] if len(inputs) > 3 else None
    size, scale = q.shape[-1], attributes["scale"]
    queries = torch.cat([q, rope], -1).float()
    output = torch.empty_like(q)

    def sees(rows: torch.Tensor | slice, visible: torch.Tensor) -> torch.Tensor:
        """visible [L, C] of these rows -> of it, what they have chosen."""
        if chosen is None:
            return visible
        among = torch.zeros(len(visible), visible.shape[1] + 1, dtype=torch.bool, device=q.device)
        # Positions of -1 go to one more column.
        return visible & among.scatter(1, chosen[rows].long() % among.shape[1], True)[:, :-1]

    def attend(rows: torch.Tensor, slots: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """rows [B, L, H, W], slots [B, C], visible [B, L, C] -> [B, L, H, R]."""
        context = cache.rows[slots].float()
        scores = torch.einsum("blhw,bcw->blhc", rows, context) * scale
        weights = scores.masked_fill(~visible[:, :, None], -torch.inf).softmax(-1)
        return torch.einsum("blhc,bcr->blhr", weights, context[..., :size]).to(q.dtype)

    table = step.tables[cache.table]
    if step.decode is not None and table.decode_slots is not None:
        group, slots = step.decode, table.decode_slots
        visible = torch.arange(slots.shape[1], device=q.device) <= group.positions
        visible = sees(group.rows, visible)
        output[group.rows] = attend(queries[group.rows, None], slots, visible[:, None])[:, 0]
    for span, slots in zip(step.prefills, table.prefill_slots, strict=True):
        positions = torch.arange(span.context, device=q.device)
        visible = positions <= positions[span.begin - span.end :, None]
        visible = sees(slice(span.begin, span.end), visible)
        rows = queries[None, span.begin : span.end]
        output[span.begin : span.end] = attend(rows, slots[None], visible[None])[0]
    return (output,)
