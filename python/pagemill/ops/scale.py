"""`scale`: multiplies by a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act_or_f32
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def scale(x: Tensor, by: float) -> Tensor:
    """x [N, ...] -> x * by, an activation or f32 as logits are; x itself if `by` is 1.

    Raises:
        ShapeError: `x` is neither.
    """
    require_act_or_f32("scale", x=x)
    if by == 1:
        return x
    return x.trace.emit("scale", [x], [(x.shape, x.dtype)], [("by", by)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    return (inputs[0] * attributes["by"],)
