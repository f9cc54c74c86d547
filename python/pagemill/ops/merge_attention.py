"""`merge_attention`: the attention over two sets of keys, and sinks, from that over each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import (
    require_act,
    require_dtype,
    require_equal_shapes,
    require_f32,
    require_rank,
    require_vector,
)
from pagemill.ops.program import Shape
from pagemill.ops.trace import Operand, ShapeError, Tensor, format_shape, row_width

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def merge_attention(
    sinks: Tensor | None,
    *parts: tuple[Tensor, Tensor],
    row_shape: Sequence[int] | None = None,
) -> Tensor:
    """One or two results of `latent_attention` with the logarithms of their sums, x [T, H, D] and
    f32 [T, H], of disjoint keys -> the attention over all keys and sinks f32 [H], [T, H, D] or
    [T, *row_shape].

    Raises:
        ShapeError: the operands do not fit.
    """
    op = "merge_attention"
    if not 1 <= len(parts) <= 2:
        raise ShapeError(f"{op}: it merges 1 or 2 results, not {len(parts)}")
    first = parts[0][0]
    require_f32(op, sinks=sinks)
    operands: list[Operand] = [sinks]
    for x, lse in parts:
        require_act(op, x=x)
        require_rank(op, "x", x, 3)
        require_equal_shapes(op, first, x)
        require_dtype(op, "lse", lse, ("f32",))
        if lse.shape != x.shape[:-1]:
            raise ShapeError(
                f"{op}: {x.name} is {format_shape(x.shape)}, {lse.name} {format_shape(lse.shape)}"
            )
        operands += [x, lse]
    require_vector(op, "sinks", sinks, int(first.shape[1]))
    shape: Shape = first.shape if row_shape is None else (first.rows, *row_shape)
    if row_width(shape) != first.width:
        raise ShapeError(f"{op}: rows of {first.width} do not fit {tuple(shape[1:])}")
    return first.trace.emit(op, operands, [(shape, first.dtype)])[0]


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in f32."""
    import torch

    del attributes, step
    sinks, *rest = inputs
    xs = [x for x in rest[::2] if x is not None]
    logarithms = torch.stack([lse for lse in rest[1::2] if lse is not None])
    scores = logarithms
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(1, *logarithms.shape[1:])])
    # Without any key there is no maximum: all shares are 0.
    shares = scores.softmax(0).masked_fill((scores == -torch.inf).all(0), 0)
    y = sum(x.float() * share[..., None] for x, share in zip(xs, shares, strict=False))
    assert isinstance(y, torch.Tensor)
    return (y.to(xs[0].dtype),)
