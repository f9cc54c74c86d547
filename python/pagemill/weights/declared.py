"""Tensors of one source in the trace of one program, each declared once, at its first use.

A matrix is used in place in its file, and so is a small operand (norm, bias) stored as f32; other
small operands become f32 constants of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagemill.ops.program import Format
from pagemill.ops.shard import Part, Stripe
from pagemill.ops.trace import Parts, Tensor, Trace
from pagemill.tensor.dtypes import CONVERTED_DTYPES, DTYPES, MATRIX_DTYPES, tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, read_f32, read_integers
from pagemill.weights.source import ModelSource


class DeclaredTensors:
    """`notes` are for the operator."""

    def __init__(self, trace: Trace, source: ModelSource) -> None:
        self.notes: list[str] = []
        self._claimed: set[str] = set()
        self._claimed_modules: set[str] = set()
        self._trace = trace
        self._source = source
        self._bound: dict[str, Tensor] = {}

    @property
    def path(self) -> Path:
        """The model, for messages."""
        return self._source.path

    def note(self, text: str) -> None:
        """Record a note for the operator, once."""
        if text not in self.notes:
            self.notes.append(text)

    def has(self, name: str) -> bool:
        """True if the source has a tensor of this name."""
        return self._source.has(name)

    def peek(self, name: str) -> TensorLocation | None:
        """The location of a tensor, without claiming it; None if there is none of this name."""
        return self._source.tensor(name) if self._source.has(name) else None

    def locate(self, name: str) -> TensorLocation:
        """The location of a tensor that the program uses, which this claims.

        Raises:
            MissingTensorError: there is none of this name.
            WeightsError: its type is not supported.
        """
        location = self._source.tensor(name)
        if location.dtype not in DTYPES:
            raise WeightsError(
                f"{self.path}: {name} is stored as {location.dtype}, which is not supported;"
                f" supported: {', '.join(sorted(DTYPES))}"
            )
        if location.dtype in CONVERTED_DTYPES:
            self.note(_conversion(location.dtype))
        self._claimed.add(location.name)
        return location if location.name == name else replace(location, name=name)

    def claim_modules(self, modules: Collection[str]) -> None:
        """Marks all tensors of these modules as used: they belong to other ranks."""
        self._claimed_modules.update(modules)

    def claim_all(self, other: DeclaredTensors) -> None:
        """Marks the tensors that another program of the same source uses."""
        self._claimed |= other._claimed
        self._claimed_modules |= other._claimed_modules

    def claimed(self) -> set[str]:
        """The stored names of the tensors that were used."""
        if not self._claimed_modules:
            return self._claimed
        tensors = filter(self._is_of_claimed_module, self._source.tensors)
        return self._claimed | {tensor.name for tensor in tensors}

    def _is_of_claimed_module(self, tensor: TensorLocation) -> bool:
        name = self._source.name_of(tensor)
        return any(name[:i] in self._claimed_modules for i, c in enumerate(name) if c == ".")

    def matrix(
        self, location: TensorLocation, rows: Part | None = None, columns: Part | None = None
    ) -> Tensor:
        """A matrix, or some of its rows or columns, as stored.

        Raises:
            WeightsError: the columns would cut a block of its type.
        """
        key, skipped, stride, shape = location.name, 0, 0, location.shape
        row_bytes = tensor_bytes(location.dtype, (1, shape[1]))
        if rows is not None and not rows.whole:
            key += f".rows{rows.begin}-{rows.end}"
            skipped, shape = rows.begin * row_bytes, (rows.size, shape[1])
        elif columns is not None and not columns.whole:
            key += f".columns{columns.begin}-{columns.end}"
            skipped, shape = self._skipped_columns(location, columns), (shape[0], columns.size)
            stride = row_bytes
        return self._declare(key, location, shape, skipped, stride)

    def transposed(
        self, location: TensorLocation, rows: Part | None = None, columns: Part | None = None
    ) -> Tensor:
        """A matrix [out, in] that is stored as [in, out], or some of its rows or columns.

        Raises:
            WeightsError: its type has blocks, which cannot be transposed.
        """
        block, shape = DTYPES[location.dtype], (location.shape[1], location.shape[0])
        if block.block_elements > 1:
            raise WeightsError(
                f"{self.path}: {location.name} is stored as {location.dtype}, in blocks, which this"
                " family would have to transpose; store it as f32, bf16 or f16"
            )
        element, stored_row = block.block_bytes, tensor_bytes(location.dtype, (1, shape[0]))
        key, skipped = f"{location.name}.transposed", 0
        if rows is not None and not rows.whole:
            key += f".rows{rows.begin}-{rows.end}"
            skipped, shape = rows.begin * element, (rows.size, shape[1])
        elif columns is not None and not columns.whole:
            key += f".columns{columns.begin}-{columns.end}"
            skipped, shape = columns.begin * stored_row, (shape[0], columns.size)
        return self._declare(key, location, shape, skipped, element, stored_row)

    def column_stripe(self, location: TensorLocation, stripe: Stripe) -> Tensor:
        """Some columns of a matrix, at equal distances.

        Raises:
            WeightsError: its type has blocks, which cannot be cut.
        """
        block, (rows, width) = DTYPES[location.dtype], location.shape
        if block.block_elements > 1:
            raise WeightsError(
                f"{self.path}: {location.name} is stored as {location.dtype}, in blocks, which this"
                " family would have to cut; store it as f32, bf16 or f16"
            )
        element, key = block.block_bytes, f"{location.name}.stripe{stripe.index}-{stripe.count}"
        shape, skipped = (rows, width // stripe.count), stripe.index * element
        return self._declare(key, location, shape, skipped, width * element, stripe.count * element)

    def stored_stack(
        self, location: TensorLocation, rows: Part | None = None, columns: Part | None = None
    ) -> Tensor:
        """A tensor that is a stack of matrices in its file, or rows or columns of each. Columns of
        each matrix are not contiguous and are stacked again.

        Raises:
            WeightsError: it is of another type than matrices, or the columns would cut a block.
        """
        if location.dtype not in MATRIX_DTYPES:
            raise WeightsError(f"{self.path}: {location.name} is stored as {location.dtype}")
        key, skipped, stride, shape = location.name, 0, 0, location.shape
        matrix_bytes = tensor_bytes(location.dtype, shape[1:])
        if columns is not None and not columns.whole:
            matrices = [
                replace(
                    location,
                    name=f"{key}[{i}]",
                    shape=shape[1:],
                    offset=location.offset + i * matrix_bytes,
                )
                for i in range(shape[0])
            ]
            parts = [self.matrix(matrix, None, columns) for matrix in matrices]
            return self.stack(parts[0].name.replace("[0]", ""), parts)
        if rows is not None and not rows.whole:
            key, stride = f"{key}.rows{rows.begin}-{rows.end}", matrix_bytes
            skipped = tensor_bytes(location.dtype, (rows.begin, shape[2]))
            shape = (shape[0], rows.size, shape[2])
        return self._declare(key, location, shape, skipped, stride)

    def turned_stack(
        self,
        location: TensorLocation,
        stripe: Stripe,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """A stack of matrices [experts, out, in] that is stored as [experts, in, stripe.count *
        out], or rows or columns of each.

        Raises:
            WeightsError: its type has blocks, which cannot be transposed.
        """
        experts, width, stored_rows = location.shape
        element = DTYPES[location.dtype].block_bytes
        if DTYPES[location.dtype].block_elements > 1:
            raise WeightsError(
                f"{self.path}: {location.name} is stored as {location.dtype}, in blocks, which this"
                " family would have to transpose; store it as f32, bf16 or f16"
            )
        rows = rows or Part(0, stored_rows // stripe.count, stored_rows // stripe.count)
        columns = columns or Part(0, width, width)
        line = element * stored_rows
        first = (rows.begin * stripe.count + stripe.index) * element + columns.begin * line
        places = [first + expert * width * line for expert in range(experts)]
        strides = (stripe.count * element, line)
        return self.strided_stack(location, (rows.size, columns.size), places, strides)

    def strided_stack(
        self,
        location: TensorLocation,
        shape: tuple[int, int],
        places: Sequence[int],
        strides: tuple[int, int],
    ) -> Tensor:
        """Matrices of `shape` at these bytes of a tensor, with the strides of rows and columns in
        bytes; a column stride of 0 if columns follow each other."""
        row, column = strides
        dense = not column and row == tensor_bytes(location.dtype, (1, shape[1]))
        key = f"{location.name}.at{places[0]}.{shape[0]}x{shape[1]}"
        parts = [
            self._declare(f"{key}[{i}]", location, shape, place, 0 if dense else row, column)
            for i, place in enumerate(places)
        ]
        return self.stack(key, parts)

    def head_matrices(self, location: TensorLocation, heads: Part, rows: Part) -> Tensor:
        """Some rows of some heads of a matrix that has the heads one below the other, [heads.total
        * rows.total, K], as stored: [heads.size, rows.size, K]."""
        width = location.shape[1]
        head_bytes = tensor_bytes(location.dtype, (rows.total, width))
        skipped = heads.begin * head_bytes + tensor_bytes(location.dtype, (rows.begin, width))
        key = f"{location.name}.heads{heads.begin}-{heads.end}.rows{rows.begin}-{rows.end}"
        shape, stride = (heads.size, rows.size, width), 0 if rows.whole else head_bytes
        return self._declare(key, location, shape, skipped, stride)

    def stack(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        """The weight `name`, composed of matrices of one type and shape.

        Raises:
            WeightsError: they are of several types.
        """
        if name not in self._bound:
            first = parts[0]
            other = next((part for part in parts if part.dtype != first.dtype), None)
            if other is not None:
                raise WeightsError(
                    f"{self.path}: {first.name} is {first.dtype}, but {other.name} is"
                    f" {other.dtype}: experts of a layer must have one type; quantize all of them"
                    " or none"
                )
            self._bound[name] = self._trace.stack(name, parts)
        return self._bound[name]

    def part(self, location: TensorLocation | None) -> Tensor | None:
        """Declares a tensor that is a part of a quantized weight."""
        if location is None:
            return None
        return self._declare(location.name, location, location.shape)

    def quantized(
        self, key: str, declare: Callable[[], tuple[str, tuple[int, ...], Format, Parts]]
    ) -> Tensor:
        """The quantized weight `key`; `declare` returns its dtype, shape, format and parts."""
        if key not in self._bound:
            self._bound[key] = self._trace.quantized(key, *declare())
        return self._bound[key]

    def vector(self, location: TensorLocation, part: Part) -> Tensor:
        """A part of a vector of real numbers, in f32; its elements may be stored in any shape.

        Raises:
            WeightsError: it has another type.
        """
        key = location.name
        key += "" if part.whole else f".part{part.begin}-{part.end}"
        if location.dtype == "f32" and not location.negated_exp:
            return self._declare(key, location, (part.size,), 4 * part.begin)
        return self.constant(key, self._read_real(location).reshape(-1)[part.begin : part.end])

    def small(
        self,
        location: TensorLocation,
        shape: tuple[int, ...] | None = None,
        rows: Part | None = None,
    ) -> Tensor:
        """A tensor of real numbers, in f32, in its own shape or in `shape`, or these `rows` of it.

        Raises:
            WeightsError: it has another type.
        """
        shape = location.shape if shape is None else shape
        key, skipped, own = location.name, 0, shape
        if rows is not None and not rows.whole:
            key += f".rows{rows.begin}-{rows.end}"
            own = (rows.size, *shape[1:])
            skipped = rows.begin * math.prod(shape[1:])
        if location.dtype == "f32" and not location.negated_exp:
            return self._declare(key, location, own, 4 * skipped)
        values = self._read_real(location).reshape(-1)
        return self.constant(key, values[skipped : skipped + math.prod(own)].reshape(own))

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Whole numbers of `shape`, stored as integers or as real numbers, in f32; claims them.

        Raises:
            WeightsError: they are missing, of another shape or type, or not exact in f32.
        """
        location = self._source.tensor(name)
        if not location.fits(shape):
            raise WeightsError(
                f"{self.path}: {name} has shape {list(location.shape)}, expected {list(shape)}"
            )
        self._claimed.add(location.name)
        return self.constant(name, read_integers(location).reshape(shape))

    def constant(self, key: str, values: np.ndarray) -> Tensor:
        """An f32 constant of the program."""
        if key not in self._bound:
            data = np.ascontiguousarray(values, dtype="<f4").tobytes()
            self._bound[key] = self._trace.constant(key, "f32", values.shape, data)
        return self._bound[key]

    def index(self, key: str, values: npt.NDArray[np.int32]) -> Tensor:
        """An i32 constant of the program."""
        if key not in self._bound:
            data = np.ascontiguousarray(values, dtype="<i4").tobytes()
            self._bound[key] = self._trace.constant(key, "i32", values.shape, data)
        return self._bound[key]

    def _read_real(self, location: TensorLocation) -> np.ndarray:
        if location.dtype not in REAL_DTYPES:
            raise WeightsError(f"{self.path}: {location.name} is stored as {location.dtype}")
        return read_f32(location)

    def _declare(
        self,
        key: str,
        location: TensorLocation,
        shape: tuple[int, ...],
        skipped: int = 0,
        stride: int = 0,
        column_stride: int = 0,
    ) -> Tensor:
        if key not in self._bound:
            self._bound[key] = self._trace.weight(
                key,
                location.dtype,
                shape,
                file=self._trace.file(location.file),
                offset=location.offset + skipped,
                row_stride=stride,
                column_stride=column_stride,
            )
        return self._bound[key]

    def _skipped_columns(self, location: TensorLocation, columns: Part) -> int:
        """Bytes of a row before `columns`."""
        block = DTYPES[location.dtype]
        if columns.begin % block.block_elements or columns.end % block.block_elements:
            raise WeightsError(
                f"{self.path}: columns {columns.begin} to {columns.end} of {location.name}"
                f" would cut a block of {block.block_elements} elements of {location.dtype}"
            )
        return columns.begin // block.block_elements * block.block_bytes


def _conversion(dtype: str) -> str:
    """A note about matrices that are stored as `dtype`."""
    becomes = CONVERTED_DTYPES[dtype]
    growth = tensor_bytes(becomes, (1, 256)) / tensor_bytes(dtype, (1, 256))
    return (
        f"matrices in {dtype} are converted to {becomes} by CPUs, which takes {growth:.1f} times"
        " the memory"
    )
