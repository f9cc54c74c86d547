"""`add`: elementwise sum; the second operand may be one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_rows, require_f32, require_vector
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def add(a: Tensor, b: Tensor) -> Tensor:
    """a [N, ...] with rows of H elements, b likewise, or an f32 weight [H] -> a + b, as a.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("add", a=a)
    if len(b.shape) == 1:
        require_f32("add", b=b)
        require_vector("add", "b", b, a.width)
    else:
        require_act("add", b=b)
        require_equal_rows("add", a, b)
    return a.trace.emit("add", [a, b], [(a.shape, a.dtype)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del attributes, step
    a, b = inputs
    return (a + b.reshape(a.shape[1:] if b.ndim == 1 else a.shape),)
