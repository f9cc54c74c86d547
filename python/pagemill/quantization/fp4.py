"""Matrices of floats of 4 bits, two a byte, the first in the lower bits: MXFP4, with a scale of a
byte for 32 columns, a power of two; NVFP4, with an e4m3 scale for 16 and a factor of the matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pagemill.ops.program import Format
from pagemill.ops.shard import Part
from pagemill.ops.trace import Parts, Tensor, format_shape
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import read_f32

BLOCK_COLUMNS = 32  # columns divide at multiples of it
MXFP4_GROUP, NVFP4_GROUP = 32, 16  # columns that share a scale
_WORD = 8  # values in an i32
_BYTES = ("i8", "u8")


@dataclass(frozen=True, slots=True)
class Factor:
    """The number [] or [1] at `<module>.<name>`: all scales are times it, or, if `divides`, by
    it."""

    name: str
    divides: bool = False


@dataclass(frozen=True, slots=True)
class Fp4Scheme:
    """`<module>.<values>`, i8 or u8 [out, in / 2], and `<module>.<scales>`, u8 [out, in / 32]; with
    a `factor`, which makes it NVFP4, f8_e4m3 [out, in / 16]."""

    values: str = "weight"
    scales: str = "weight_scale"
    factor: Factor | None = None

    @property
    def name(self) -> str:
        return f"{self._layout} (two floats a byte)"

    @property
    def _layout(self) -> str:
        return "mxfp4" if self.factor is None else "nvfp4"

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        location = tensors.peek(f"{module}.{self.values}")
        return location is not None and location.dtype in _BYTES

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        del tensors, module
        return BLOCK_COLUMNS

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        rows = rows or Part(0, shape[0], shape[0])
        columns = columns or Part(0, shape[1], shape[1])
        name = f"{module}.{self.values}"
        check_columns(tensors, name, columns)
        group, of_scales = (MXFP4_GROUP, "u8") if self.factor is None else (NVFP4_GROUP, "f8_e4m3")

        def declare() -> tuple[str, tuple[int, ...], Format, Parts]:
            words = (shape[0], shape[1] // _WORD)
            packed = locate(tensors, name, (shape[0], shape[1] // 2), _BYTES)
            grid = (shape[0], shape[1] // group)
            scales = locate(tensors, f"{module}.{self.scales}", grid, (of_scales,))
            values = tensors.part(replace(packed, dtype="i32", shape=words))
            form = Format(self._layout, (1, group), (rows.begin, columns.begin))
            factor = None if self.factor is None else _factor(tensors, module, self.factor)
            parts = Parts(values, tensors.part(scales), factor=factor)
            return "u4", (rows.size, columns.size), form, parts

        place = f"rows{rows.begin}-{rows.end}.columns{columns.begin}-{columns.end}"
        return tensors.quantized(f"{name}.{place}", declare)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor:
        del width, heads, rows
        raise WeightsError(
            f"{tensors.path}: {module} is stored as {self._layout}, which matrices that are"
            " multiplied head by head may not be; leave this one unquantized"
        )


def _factor(tensors: DeclaredTensors, module: str, factor: Factor) -> Tensor:
    name = f"{module}.{factor.name}"
    location = tensors.locate(name)
    if location.dtype == "f32" and location.shape in ((), (1,)):
        number = read_f32(location).reshape(1)
        with np.errstate(all="ignore"):
            by = 1 / number if factor.divides else number
        if np.isfinite(by).all() and (by > 0).all():
            return (
                tensors.constant(f"{name}.inverse", by)
                if factor.divides
                else tensors.small(location, (1,))
            )
    raise WeightsError(
        f"{tensors.path}: {name} is {location.dtype} {format_shape(location.shape)}; it must be a"
        " finite number > 0 in f32, and so must be its inverse if scales are divided by it"
    )


def check_columns(tensors: DeclaredTensors, name: str, columns: Part) -> None:
    """
    Raises:
        WeightsError: these columns would cut a block.
    """
    if any(place % BLOCK_COLUMNS for place in (columns.total, columns.begin, columns.size)):
        raise WeightsError(
            f"{tensors.path}: columns {columns.begin} to {columns.end} of {name}, of"
            f" {columns.total}, would cut a block of {BLOCK_COLUMNS} columns"
        )


def locate(
    tensors: DeclaredTensors, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...] = ("u8",)
) -> TensorLocation:
    """The tensor `name`, which must have this shape and one of these types.

    Raises:
        WeightsError: it is missing, or has not.
    """
    location = tensors.locate(name)
    if location.dtype in dtypes and location.shape == shape:
        return location
    raise WeightsError(
        f"{tensors.path}: {name} is {location.dtype} {format_shape(location.shape)}, the"
        f" configuration needs {' or '.join(dtypes)} {format_shape(shape)}"
    )
