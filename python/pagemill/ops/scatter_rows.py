"""`scatter_rows`: replaces rows, such as the embeddings of an image's placeholder tokens by those
of the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype, require_rank
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def scatter_rows(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    """x [T, ...], y [M, ...], rows i32 [M] -> x, but row rows[m] is y[m], in rows of y's shape.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("scatter_rows", x=x, y=y)
    require_rank("scatter_rows", "rows", rows, 1)
    require_dtype("scatter_rows", "rows", rows, ("i32",))
    if y.rows != rows.rows or y.width != x.width:
        raise ShapeError(
            f"scatter_rows: x is {format_shape(x.shape)}, y {format_shape(y.shape)}, rows"
            f" {format_shape(rows.shape)}"
        )
    shape = (x.rows, *y.shape[1:])
    return x.trace.emit("scatter_rows", [x, y, rows], [(shape, x.dtype)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del attributes, step
    x, y, rows = inputs
    result = x.reshape(len(x), *y.shape[1:]).clone()
    result[rows] = y
    return (result,)
