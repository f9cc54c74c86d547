"""`scaled_linear`: rows times the transpose of a matrix of 8-bit elements times scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagemill.ops.checks import (
    require_act,
    require_dtype,
    require_f32,
    require_rank,
    require_vector,
)
from pagemill.ops.program import ACT, Shape
from pagemill.ops.trace import ShapeError, Tensor, format_shape, row_width

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep

SCALED_DTYPES = ("f8_e4m3", "i8")


@dataclass(frozen=True, slots=True)
class ScaledMatrix:
    """A weight with its scales, as `scaled_linear` takes them."""

    weight: Tensor
    scales: Tensor
    block: tuple[int, int]
    int8_activations: bool


def scaled_linear(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    bias: Tensor | None = None,
    *,
    block: tuple[int, int],
    int8_activations: bool = False,
    row_shape: Sequence[int] | None = None,
    dtype: str = ACT,
) -> Tensor:
    """x [N, K], weight i8 or f8_e4m3 [M, K], bias [M] -> x (scales * weight)^T + bias, [N, M].

    `block` is the rows and columns of weight that share an element of scales, which is f32
    [ceil(M / rows), ceil(K / columns)]; (1, K) is a scale a row. `int8_activations`: the weights
    were made for x in int8, so kernels may round it unless the user asks for f32. `row_shape` and
    `dtype` as in `linear`.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("scaled_linear", x=x)
    require_f32("scaled_linear", scales=scales, bias=bias)
    require_rank("scaled_linear", "weight", weight, 2)
    require_dtype("scaled_linear", "weight", weight, SCALED_DTYPES)
    out, features = int(weight.rows), weight.width
    if x.width != features:
        raise ShapeError(
            f"scaled_linear: {x.name} has rows of {x.width}, weight {weight.name} takes {features}"
        )
    expected = (-(-out // block[0]), -(-features // block[1]))
    if scales.shape != expected:
        raise ShapeError(
            f"scaled_linear: scales ({scales.name}) must be {format_shape(expected)},"
            f" got {format_shape(scales.shape)}"
        )
    require_vector("scaled_linear", "bias", bias, out)
    shape: Shape = (x.rows, *(row_shape or (out,)))
    if row_width(shape) != out:
        raise ShapeError(
            f"scaled_linear: rows of {out} of {weight.name} do not fit {tuple(shape[1:])}"
        )
    attributes: list[tuple[str, float]] = []
    if block[0] != 1:
        attributes.append(("block_rows", block[0]))
    if block[1] < features:
        attributes.append(("block_columns", block[1]))
    if int8_activations:
        attributes.append(("int8_activations", 1))
    operands = [x, weight, scales] if bias is None else [x, weight, scales, bias]
    return x.trace.emit("scaled_linear", operands, [(shape, dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch: weights as the executor loads them, times their scales in f32; x unrounded.

    A rewrite makes ops of several products of one `x`: weight, scales and bias or None of each.
    """
    import torch
    from torch.nn.functional import linear as torch_linear

    del step
    x = inputs[0]
    assert x is not None
    block_rows = int(attributes.get("block_rows", 1))
    results: list[torch.Tensor] = []
    for i in range(1, len(inputs), 3):
        weight, scales = inputs[i], inputs[i + 1]
        assert weight is not None and scales is not None
        bias = inputs[i + 2] if i + 2 < len(inputs) else None
        m, k = weight.shape
        block_columns = int(attributes.get("block_columns", k))
        row_blocks = torch.arange(m, device=x.device) // block_rows
        column_blocks = torch.arange(k, device=x.device) // block_columns
        wide = scales.float()[row_blocks[:, None], column_blocks]
        scaled = (weight.float() * wide).to(x.dtype)
        rows = x.reshape(x.shape[0], k)
        results.append(torch_linear(rows, scaled, None if bias is None else bias.to(x.dtype)))
    return tuple(results)
