"""`depthwise_conv`: convolutions of each channel over the tokens of an encoder's requests, or over
positions of each token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import (
    require_act,
    require_dtype,
    require_f32,
    require_rank,
    require_vector,
)
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep

MAX_TAPS = 64


def depthwise_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, before: int = 0, grid: bool = False
) -> Tensor:
    """x [T, ...] with rows of C channels, weight f32 [C, ...] with K taps of each, bias [C] -> the
    depthwise convolution of each request's tokens, in the shape of x.

    The taps multiply the tokens from `before` tokens in front of each on; those outside of its
    request are zeros. On the `grid`, K is the square of an odd number, and the taps multiply the
    tokens around each in rows and columns of `grid_positions`, at the same time.

    Raises:
        ShapeError: the operands do not fit, `before` is not a tap's number, or the program has no
            grid.
    """
    taps = _check_operands(x, weight, bias)
    if weight.shape[0] != x.width:
        raise ShapeError(
            f"depthwise_conv: rows of {x.width}, {weight.name} is {format_shape(weight.shape)}"
        )
    if not 0 <= before < taps or (grid and before):
        raise ShapeError(f"depthwise_conv: {before} taps in front of a token, of {taps}")
    if grid and (math.isqrt(taps) ** 2 != taps or taps % 2 == 0):
        raise ShapeError(f"depthwise_conv: {taps} taps are not the square of an odd number")
    if grid and not x.trace.declares_input("grid_positions"):
        raise ShapeError("depthwise_conv: grid needs the input grid_positions")
    attributes = [("grid", 1)] if grid else [("before", before)] if before else []
    return x.trace.emit("depthwise_conv", [x, weight, bias], [(x.shape, x.dtype)], attributes)[0]


def depthwise_conv_listed(x: Tensor, weight: Tensor, bias: Tensor | None, index: Tensor) -> Tensor:
    """x [T, ...] with rows of positions of C channels, weight f32 [C, ...] with K taps of each,
    bias [C], index i32 [J, K] -> [T, J, C]: the convolution of each token's own positions, of which
    `index` lists those that the taps of each result multiply; other numbers are zeros.

    Raises:
        ShapeError: the operands do not fit.
    """
    taps = _check_operands(x, weight, bias)
    require_dtype("depthwise_conv", "index", index, ("i32",))
    require_rank("depthwise_conv", "index", index, 2)
    channels = int(weight.shape[0])
    if x.width % channels or index.width != taps:
        raise ShapeError(
            f"depthwise_conv: rows of {x.width}, {weight.name} is {format_shape(weight.shape)}, the"
            f" index is {format_shape(index.shape)}"
        )
    shape = (x.rows, int(index.rows), channels)
    return x.trace.emit("depthwise_conv", [x, weight, bias, index], [(shape, x.dtype)])[0]


def _check_operands(x: Tensor, weight: Tensor, bias: Tensor | None) -> int:
    """The number of taps."""
    require_act("depthwise_conv", x=x)
    require_f32("depthwise_conv", weight=weight, bias=bias)
    require_vector("depthwise_conv", "bias", bias, int(weight.shape[0]))
    if not 1 <= weight.width <= MAX_TAPS:
        raise ShapeError(
            f"depthwise_conv: {weight.name} has {weight.width} taps; 1 to {MAX_TAPS} are supported"
        )
    return weight.width


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in f32, request by request."""
    import torch

    x, weight, bias = inputs[:3]
    assert x is not None and weight is not None
    taps = weight.float().flatten(1)
    index = inputs[3] if len(inputs) > 3 else None
    if index is not None:
        y = _listed(x.float().reshape(len(x), -1, len(taps)), taps, index)
        return ((y if bias is None else y + bias.float()).to(x.dtype),)
    rows = x.float().flatten(1)
    y = torch.zeros_like(rows) if bias is None else bias.float().expand_as(rows).clone()
    for span in step.spans:
        own = rows[span.begin : span.end]
        for tap in range(taps.shape[1]):
            if attributes.get("grid"):
                places = step.inputs["grid_positions"][span.begin : span.end]
                to, at = _beside(places, tap, math.isqrt(taps.shape[1]))
            else:
                to, at = _behind(len(own), tap - int(attributes.get("before", 0)), x.device)
            y[span.begin + to] += own[at] * taps[:, tap]
    return (y.reshape(x.shape).to(x.dtype),)


def _listed(x: torch.Tensor, taps: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """x [T, P, C], taps [C, K], index [J, K] -> [T, J, C]."""
    inside = (index >= 0) & (index < x.shape[1])
    read = x[:, index.long() * inside] * inside[..., None]
    return (read * taps.T).sum(2)


def _behind(count: int, distance: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of a request of `count`, and those so far behind them, as far as there are any."""
    import torch

    tokens = torch.arange(count, device=device)
    tokens = tokens[(tokens + distance >= 0) & (tokens + distance < count)]
    return tokens, tokens + distance


def _beside(places: torch.Tensor, tap: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens with the `places` [T, 3], and those at the place of a tap beside them, as far as there
    are any."""
    import torch

    step = (0, tap // side - side // 2, tap % side - side // 2)
    wanted = places + torch.tensor(step, device=places.device, dtype=places.dtype)
    found = (wanted[:, None] == places).all(-1)
    tokens, beside = found.nonzero(as_tuple=True)
    return tokens, beside
