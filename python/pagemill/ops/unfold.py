"""`unfold`: the windows of a convolution over the positions of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_rank
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def unfold(x: Tensor, size: int, *, stride: int = 1, padding: int = 0) -> Tensor:
    """x [N, P, C] -> [N, windows, C * size]: the windows of `size` positions, `stride` from each
    other, of rows with `padding` zeros on both sides. The element of channel c and the k-th
    position of its window is at c * size + k, as in a convolution's weights [out, C, size].

    Raises:
        ShapeError: x is no activation of three dimensions, or has no such window.
    """
    require_act("unfold", x=x)
    require_rank("unfold", "x", x, 3)
    positions, channels = int(x.shape[1]), int(x.shape[2])
    steps = positions + 2 * padding - size
    if size < 1 or stride < 1 or not 0 <= padding < size or steps < 0:
        raise ShapeError(
            f"unfold: {x.name} {format_shape(x.shape)} has no windows of {size} with the stride"
            f" {stride} and the padding {padding}"
        )
    shape = (x.rows, steps // stride + 1, channels * size)
    attributes = [("size", size)]
    if stride != 1:
        attributes.append(("stride", stride))
    if padding:
        attributes.append(("padding", padding))
    return x.trace.emit("unfold", [x], [(shape, x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    from torch.nn.functional import pad

    del step
    (x,) = inputs
    padding = int(attributes.get("padding", 0))
    padded = pad(x, (0, 0, padding, padding))
    windows = padded.unfold(1, int(attributes["size"]), int(attributes.get("stride", 1)))
    return (windows.flatten(2),)
