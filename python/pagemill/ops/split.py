"""`split`: splits the last dimension of a value into two values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act
from pagemill.ops.program import Shape
from pagemill.ops.trace import ShapeError, Tensor, format_shape, row_width

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def split(
    x: Tensor,
    at: int,
    *,
    row_shapes: tuple[Sequence[int] | None, Sequence[int] | None] = (None, None),
) -> tuple[Tensor, Tensor]:
    """x [N, ..., D] -> its elements before and from `at`, [N, ..., at] and [N, ..., D - at]; with
    `row_shapes`, their rows in other shapes.

    Raises:
        ShapeError: `x` is no activation; there is none before or none after; or a row does not fit
            its shape.
    """
    require_act("split", x=x)
    size = last_dim("split", "x", x)
    if not 0 < at < size or len(x.shape) < 2:
        raise ShapeError(f"split: {x.name} {format_shape(x.shape)} cannot be cut at {at}")
    results: list[tuple[Shape, str]] = []
    for part, row in zip((at, size - at), row_shapes, strict=True):
        shape: Shape = (*x.shape[:-1], part) if row is None else (x.rows, *row)
        if row_width(shape) != x.width // size * part:
            raise ShapeError(
                f"split: rows of {x.width // size * part} of {x.name} do not fit {tuple(shape[1:])}"
            )
        results.append((shape, x.dtype))
    parts = x.trace.emit("split", [x], results, [("at", at)])
    return parts[0], parts[1]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    (x,) = inputs
    at = int(attributes["at"])
    return x[..., :at], x[..., at:]
