"""`rms_norm`: root mean square normalization over the last dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act, require_f32, require_vector
from pagemill.ops.program import Shape
from pagemill.ops.trace import ShapeError, Tensor, row_width

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def rms_norm(
    x: Tensor,
    weight: Tensor,
    *,
    eps: float,
    weight_offset: float = 0.0,
    row_shape: Sequence[int] | None = None,
) -> Tensor:
    """x [N, ..., H], weight [H], or [G * H] for x [N, G, H] -> x / sqrt(mean(x^2) + eps) times
    (weight + weight_offset), the mean over the last dimension.

    `row_shape`, e.g. (heads, head_dim), gives the rows of the result another shape.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("rms_norm", x=x)
    require_f32("rms_norm", weight=weight)
    if len(x.shape) != 3 or weight.shape != (x.width,):
        require_vector("rms_norm", "weight", weight, last_dim("rms_norm", "x", x))
    shape: Shape = x.shape if row_shape is None else (x.rows, *row_shape)
    if row_width(shape) != x.width:
        raise ShapeError(f"rms_norm: rows of {x.width} of {x.name} do not fit {tuple(shape[1:])}")
    attributes = [("eps", eps)]
    if weight_offset != 0.0:
        attributes.append(("weight_offset", weight_offset))
    return x.trace.emit("rms_norm", [x, weight], [(shape, x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; computed in f32 for every type of `x`."""
    del step
    x, weight = inputs
    wide = x.float()
    scale = (wide.pow(2).mean(-1, keepdim=True) + attributes["eps"]).rsqrt()
    offset = attributes.get("weight_offset", 0.0)
    if len(weight) != x.shape[-1]:
        weight = weight.reshape(x.shape[1:])
    return ((wide * scale * (weight.float() + offset)).to(x.dtype),)
