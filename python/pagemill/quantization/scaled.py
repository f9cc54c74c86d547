"""Matrices of 8-bit elements times scales, stored beside them as `<module>.weight_scale`,
`weight_scale_inv` or `scale` (all multiply); whole or in parts. Scales are real numbers, perhaps
in another unit, or bytes that are the exponents of powers of two (e8m0)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagemill.ops.program import Format
from pagemill.ops.shard import Part
from pagemill.ops.trace import Parts, Tensor, format_shape
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, e8m0_values, read_bytes, read_f32
from pagemill.weights.source import ModelSource

_SUFFIXES = ("weight_scale", "weight_scale_inv", "scale")
_EXPONENTS = "u8"
PARTS = frozenset(_SUFFIXES)
MXFP8_GROUP = 32  # columns that share a scale
# Rows of a block as high as any matrix: one scale for all of them, and the same attribute for
# matrices of any height, so that one op can multiply them.
_ALL_ROWS = 1 << 30
_HEADS_NOTE = (
    "matrices of 8 bits that are multiplied head by head are expanded to bf16 by CPUs, to twice"
    " their memory"
)


def group_scales(source: ModelSource) -> list[TensorLocation]:
    """The scales of `source` that are exponents in bytes, several for each row of a matrix: too
    many for the constants of a program."""
    found: list[TensorLocation] = []
    for tensor in source.tensors if source.gguf is None else ():
        module, _, kind = tensor.name.rpartition(".")
        if kind not in _SUFFIXES or tensor.dtype != _EXPONENTS or len(tensor.shape) != 2:
            continue
        if source.has(name := f"{module}.weight"):
            matrix = source.tensor(name)
            by_row = matrix.shape[:1] == tensor.shape[:1] and tensor.shape[1] > 1
            found += [tensor] if by_row and matrix.dtype == "f8_e4m3" else []
    return found


@dataclass(frozen=True, slots=True)
class Scales:
    """f32 [rows of blocks, columns of blocks], and the rows and columns of a block."""

    values: npt.NDArray[np.float32]
    block: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScaledScheme:
    """`dtype` is "i8" or "f8_e4m3"; `block` is the rows and columns that share a scale, None if a
    row or the matrix does; `quantized_activations`: made for activations of that type, too.
    `suffixes`: names that scales may have; times `unit` they are what multiplies. `values`: the
    name of the elements."""

    method: str
    dtype: str
    block: tuple[int, int] | None
    quantized_activations: bool = False
    suffixes: tuple[str, ...] = _SUFFIXES
    unit: float = 1
    values: str = "weight"

    @property
    def name(self) -> str:
        return f"{self.method} ({self.dtype} with scales)"

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        location = tensors.peek(f"{module}.{self.values}")
        return location is not None and location.dtype == self.dtype

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        del tensors, module
        return 1 if self.block is None else self.block[1]

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        location = _locate_values(tensors, f"{module}.{self.values}", shape)
        scales_at, block = self._locate_scales(tensors, module, shape)
        grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
        values = tensors.matrix(location, rows, columns)
        whole = all(part is None or part.whole for part in (rows, columns))
        if whole and scales_at.dtype != _EXPONENTS and self.unit == 1:
            return self._scaled(tensors, values, tensors.small(scales_at, grid), block)
        if self._has_rows(scales_at, block, columns):
            own_rows = tensors.matrix(replace(scales_at, shape=grid), rows)
            return self._scaled(tensors, values, own_rows, block)
        stored = Scales(self._read_scales(tensors, scales_at).reshape(grid), block)
        own = part_of_scales(stored, location, rows, columns)
        scales = tensors.constant(f"{values.name}.scales", own.values)
        return self._scaled(tensors, values, scales, own.block)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor:
        shape = (heads.total * rows.total, width)
        location = _locate_values(tensors, f"{module}.{self.values}", shape)
        scales_at, block = self._locate_scales(tensors, module, shape)
        grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
        stored = Scales(self._read_scales(tensors, scales_at).reshape(grid), block)
        own = scales_of_heads(stored, heads, rows)
        values = tensors.head_matrices(location, heads, rows)
        scales = tensors.constant(f"{values.name}.scales", own.values)
        tensors.note(_HEADS_NOTE)
        return self._scaled(tensors, values, scales, own.block)

    def _scaled(
        self, tensors: DeclaredTensors, values: Tensor, scales: Tensor, block: tuple[int, int]
    ) -> Tensor:
        """The weight of these parts. Its values have the name that the tensor has in the file."""
        form = Format("scaled", block, quantized_activations=self.quantized_activations)
        return tensors.quantized(
            f"{values.name}.scaled",
            lambda: (self.dtype, _dims(values), form, Parts(values, scales)),
        )

    def _has_rows(
        self, scales: TensorLocation, block: tuple[int, int], columns: Part | None
    ) -> bool:
        """True if the scales of some rows can be used in their file."""
        whole = columns is None or columns.whole
        return whole and block[0] == 1 and scales.dtype == "f32" and self.unit == 1

    def _read_scales(
        self, tensors: DeclaredTensors, location: TensorLocation
    ) -> npt.NDArray[np.float32]:
        if location.dtype != _EXPONENTS:
            return read_f32(location) * np.float32(self.unit)
        scales = e8m0_values(read_bytes(location))
        if not np.isfinite(scales).all():
            raise WeightsError(f"{tensors.path}: {location.name} has a scale that is not a number")
        return scales

    def _locate_scales(
        self, tensors: DeclaredTensors, module: str, shape: tuple[int, int]
    ) -> tuple[TensorLocation, tuple[int, int]]:
        """The scales of the whole matrix of `module`, which has this shape, and the rows and
        columns of a block.

        Raises:
            WeightsError: there are none, or of another shape than config.json says.
        """
        suffixes = self.suffixes
        names = [f"{module}.{suffix}" for suffix in suffixes if tensors.has(f"{module}.{suffix}")]
        if len(names) != 1:
            found = " and ".join(names) or "no scales"
            raise WeightsError(
                f"{tensors.path}: {module}.{self.values} has {found};"
                f" it needs one of {', '.join(suffixes)} beside it"
            )
        location = tensors.locate(names[0])
        expected: dict[tuple[int, ...], tuple[int, int]] = {}
        if self.block is not None:
            rows, columns = self.block
            grid = (-(-shape[0] // rows), -(-shape[1] // columns))
            # With the dimensions of a block, each 1, as ModelOpt writes them.
            expected = {grid: self.block, (grid[0], 1, grid[1], 1): self.block}
        else:
            per_row, single = (1, shape[1]), (_ALL_ROWS, shape[1])
            expected = {(shape[0],): per_row, (shape[0], 1): per_row, (): single, (1,): single}
            expected.setdefault((1, 1), single)
        if location.shape not in expected or location.dtype not in (*REAL_DTYPES, _EXPONENTS):
            wanted = " or ".join(format_shape(known) for known in expected)
            raise WeightsError(
                f"{tensors.path}: {names[0]} is {location.dtype} {format_shape(location.shape)};"
                f" it must be f32, bf16, f16 or u8 {wanted}"
            )
        return location, expected[location.shape]


def mxfp8(method: str) -> ScaledScheme:
    """e4m3 with a scale for 32 columns of a row, a power of two. Activations are not rounded so."""
    return ScaledScheme(method, "f8_e4m3", (1, MXFP8_GROUP))


def _locate_values(tensors: DeclaredTensors, name: str, shape: tuple[int, int]) -> TensorLocation:
    location = tensors.locate(name)
    if location.shape == shape:
        return location
    raise WeightsError(
        f"{tensors.path}: {location.name} is {format_shape(location.shape)}, "
        f"the configuration asks for {format_shape(shape)}"
    )


def _dims(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(dim) for dim in tensor.shape)


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


def scales_of_heads(scales: Scales, heads: Part, rows: Part) -> Scales:
    """Those of some rows of some heads of a matrix [heads.total * rows.total, ...], as a stack:
    [heads.size, rows of blocks, columns of blocks]."""
    block_rows, block_columns = scales.block
    begins = np.array([head * rows.total + rows.begin for head in heads.indices])
    # A scale for each row if blocks begin anywhere else than heads do.
    step = 1 if (begins % block_rows).any() else block_rows
    places = begins[:, None] + np.arange(0, rows.size, step)
    return Scales(scales.values[places // block_rows], (step, block_columns))
