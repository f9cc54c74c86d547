"""`concat`: rows of several values side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act
from pagemill.ops.program import Shape
from pagemill.ops.trace import ShapeError, Tensor, format_shape, row_width

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep

MAX_INPUTS = 8


def concat(*xs: Tensor, row_shape: Sequence[int] | None = None) -> Tensor:
    """Two to eight values [N, ...] -> [N, the sum of their widths], or rows of `row_shape`.

    Raises:
        ShapeError: they are of another number, have different rows, or are no activations; or their
            rows together do not fit `row_shape`.
    """
    if not 2 <= len(xs) <= MAX_INPUTS:
        raise ShapeError(f"concat: {len(xs)} values; it takes 2 to {MAX_INPUTS}")
    for x in xs:
        require_act("concat", x=x)
        if x.rows != xs[0].rows:
            shapes = f"{format_shape(xs[0].shape)} and {x.name} is {format_shape(x.shape)}"
            raise ShapeError(f"concat: {xs[0].name} is {shapes}; their rows must be the same")
    width = sum(x.width for x in xs)
    shape: Shape = (xs[0].rows, *(row_shape or (width,)))
    if row_width(shape) != width:
        raise ShapeError(f"concat: rows of {width} do not fit {tuple(shape[1:])}")
    return xs[0].trace.emit("concat", xs, [(shape, xs[0].dtype)])[0]


def concat_all(xs: Sequence[Tensor], row_shape: Sequence[int] | None = None) -> Tensor:
    """As `concat`, for any number of values; one is itself.

    Raises:
        ShapeError: as `concat`.
    """
    while len(xs) > MAX_INPUTS:
        groups = [xs[at : at + MAX_INPUTS] for at in range(0, len(xs), MAX_INPUTS)]
        xs = [concat(*group) if len(group) > 1 else group[0] for group in groups]
    return concat(*xs, row_shape=row_shape) if len(xs) > 1 else xs[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    import torch

    del attributes, step
    return (torch.cat([x.flatten(1) for x in inputs], 1),)
