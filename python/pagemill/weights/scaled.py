"""Matrices of 8-bit elements with scales beside them, whole or in parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagemill.ops.scaled_linear import SCALED_DTYPES
from pagemill.ops.shard import Part
from pagemill.ops.trace import format_shape
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.quantization import ScaledQuantization
from pagemill.weights.read import REAL_DTYPES, read_f32
from pagemill.weights.source import ModelSource

_SUFFIXES = ("weight_scale", "weight_scale_inv")
# Rows of a block that is as high as any matrix: one scale for all of them, and the same attribute
# for matrices of any height, so that they can be multiplied by one op.
_ALL_ROWS = 1 << 30


@dataclass(frozen=True, slots=True)
class Scales:
    """f32 [rows of blocks, columns of blocks], and the rows and columns of a block."""

    values: npt.NDArray[np.float32]
    block: tuple[int, int]


def is_scaled(source: ModelSource, module: str) -> bool:
    """Is the weight of `module` stored in 8 bits with scales?"""
    name = f"{module}.weight"
    return source.has(name) and source.tensor(name).dtype in SCALED_DTYPES


def quantization_of(source: ModelSource, module: str) -> ScaledQuantization:
    """What config.json says of the 8-bit matrix of `module`.

    Raises:
        WeightsError: it says nothing, or something else.
    """
    quantization, stored = source.quantization, source.tensor(f"{module}.weight").dtype
    if not isinstance(quantization, ScaledQuantization) or quantization.dtype != stored:
        says = "no such quantization" if quantization is None else quantization.method
        raise WeightsError(
            f"{source.path}: {module}.weight is stored as {stored}, config.json has {says} for it"
        )
    if not quantization.covers(module):
        raise WeightsError(
            f"{source.path}: {module}.weight is stored as {stored}, but config.json lists it among"
            " modules that are not quantized"
        )
    return quantization


def read_scales(source: ModelSource, module: str, shape: tuple[int, int]) -> Scales:
    """The scales of the whole matrix of `module`, which has this shape.

    Raises:
        WeightsError: there are none, or of another shape than config.json says.
    """
    quantization = quantization_of(source, module)
    names = [f"{module}.{suffix}" for suffix in _SUFFIXES if source.has(f"{module}.{suffix}")]
    if len(names) != 1:
        found = " and ".join(names) or "no scales"
        raise WeightsError(
            f"{source.path}: {module}.weight has {found};"
            f" it needs one of {', '.join(_SUFFIXES)} beside it"
        )
    location = source.tensor(names[0])
    expected: dict[tuple[int, ...], tuple[int, int]] = {}
    if quantization.block is not None:
        rows, columns = quantization.block
        expected[(-(-shape[0] // rows), -(-shape[1] // columns))] = quantization.block
    else:
        per_row, single = (1, shape[1]), (_ALL_ROWS, shape[1])
        expected = {(shape[0],): per_row, (shape[0], 1): per_row, (): single, (1,): single}
        expected.setdefault((1, 1), single)
    if location.shape not in expected or location.dtype not in REAL_DTYPES:
        wanted = " or ".join(format_shape(known) for known in expected)
        raise WeightsError(
            f"{source.path}: {names[0]} is {location.dtype} {format_shape(location.shape)};"
            f" it must be f32, bf16 or f16 {wanted}"
        )
    block = expected[location.shape]
    grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    return Scales(read_f32(location).reshape(grid), block)


def part_of_scales(
    scales: Scales, location: TensorLocation, rows: Part | None, columns: Part | None
) -> Scales:
    """The scales of some rows or columns of the matrix at `location`.

    Raises:
        WeightsError: columns would cut a block.
    """
    values, (block_rows, block_columns) = scales.values, scales.block
    if columns is not None and not columns.whole:
        ends = columns.end % block_columns and columns.end != columns.total
        if values.shape[1] > 1 and (columns.begin % block_columns or ends):
            raise WeightsError(
                f"columns {columns.begin} to {columns.end} of {location.name} would cut a block of"
                f" {block_columns} columns that share a scale"
            )
        if values.shape[1] > 1:
            begin = columns.begin // block_columns
            values = values[:, begin : -(-columns.end // block_columns)]
    if rows is not None and not rows.whole and values.shape[0] > 1:
        if rows.begin % block_rows == 0:
            values = values[rows.begin // block_rows : -(-rows.end // block_rows)]
        else:  # a scale for each row, so that blocks may begin anywhere
            values = values[np.arange(rows.begin, rows.end) // block_rows]
            block_rows = 1
    return Scales(np.ascontiguousarray(values), (block_rows, block_columns))
