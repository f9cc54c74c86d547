"""`unfold`: the windows of a convolution over the positions of each row, or those of an index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype, require_rank
from pagemill.ops.trace import ShapeError, Tensor, format_shape, row_width

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


def unfold_listed(
    x: Tensor, index: Tensor, channels: int, *, shape: Sequence[int] | None = None
) -> Tensor:
    """x [N, ...] with rows of P positions of C `channels`, index i32 [G, J, size] -> [N, J, C *
    size]: the windows that `index` lists, for row n at [n % G], of positions in the G P ones of the
    group of G rows that n is in, one after the other. Positions outside of them, or of rows behind
    the last, are zeros. Windows of one position gather rows. Elements are in the order of `unfold`;
    windows have another `shape` if it is given.

    Raises:
        ShapeError: x is no activation of such positions, index does not have three dimensions, or
            windows do not fit `shape`.
    """
    require_act("unfold", x=x)
    require_dtype("unfold", "index", index, ("i32",))
    require_rank("unfold", "index", index, 3)
    if x.width % channels:
        raise ShapeError(
            f"unfold: {x.name} {format_shape(x.shape)} has no positions of {channels} channels"
        )
    elements = channels * int(index.shape[2])
    result = (x.rows, int(index.shape[1]), *((elements,) if shape is None else shape))
    if row_width(result[1:]) != elements:
        raise ShapeError(f"unfold: windows of {elements} elements do not fit {list(result[2:])}")
    return x.trace.emit("unfold", [x, index], [(result, x.dtype)], [("channels", channels)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    from torch.nn.functional import pad

    del step
    x = inputs[0]
    if len(inputs) > 1:
        return (_listed(x, inputs[1], int(attributes["channels"])),)
    padding = int(attributes.get("padding", 0))
    padded = pad(x, (0, 0, padding, padding))
    windows = padded.unfold(1, int(attributes["size"]), int(attributes.get("stride", 1)))
    return (windows.flatten(2),)


def _listed(x: torch.Tensor, index: torch.Tensor, channels: int) -> torch.Tensor:
    import torch

    rows, positions = len(x), math.prod(x.shape[1:]) // channels
    group, windows, size = index.shape
    numbers = torch.arange(rows, device=x.device)
    of_rows = index[numbers % group].long()
    first = (numbers - numbers % group)[:, None, None] * positions
    end = (rows * positions - first).clamp(max=group * positions)
    inside = (of_rows >= 0) & (of_rows < end)
    found = x.reshape(-1, channels)[torch.where(inside, first + of_rows, 0)]
    found = found.masked_fill(~inside[..., None], 0)
    return found.transpose(2, 3).reshape(rows, windows, channels * size)
