"""`split`: splits the last dimension of a value into two values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def split(x: Tensor, at: int) -> tuple[Tensor, Tensor]:
    """x [N, ..., D] -> its elements before and from `at`, [N, ..., at] and [N, ..., D - at].

    Raises:
        ShapeError: `x` is no activation; or there is none before or none after.
    """
    require_act("split", x=x)
    size = last_dim("split", "x", x)
    if not 0 < at < size or len(x.shape) < 2:
        raise ShapeError(f"split: {x.name} {format_shape(x.shape)} cannot be cut at {at}")
    shapes = ((*x.shape[:-1], at), (*x.shape[:-1], size - at))
    parts = x.trace.emit("split", [x], [(shape, x.dtype) for shape in shapes], [("at", at)])
    return parts[0], parts[1]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    (x,) = inputs
    at = int(attributes["at"])
    return x[..., :at], x[..., at:]
