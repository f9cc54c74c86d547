"""Declares a source's tensors in a trace, under the names and in the forms that ops want.

A matrix is used as it lies in its file, or is made of packed integers there. A small operand (norm,
bias) is used as it lies where it is stored as f32; another travels as an f32 constant of the
program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagemill.ops.dtypes import DTYPES, MATRIX_DTYPES, tensor_bytes
from pagemill.ops.program import AssembledEntry
from pagemill.ops.scaled_linear import SCALED_DTYPES, ScaledMatrix
from pagemill.ops.shard import Part, Shard
from pagemill.ops.trace import Tensor, Trace, format_shape
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.packed import BLOCK_COLUMNS, has_packed, packed_matrix
from pagemill.weights.quantization import GroupQuantization
from pagemill.weights.read import read_f32
from pagemill.weights.scaled import is_scaled, part_of_scales, quantization_of, read_scales
from pagemill.weights.source import ModelSource


class WeightBinder:
    """Binds one source to the trace of one rank; each tensor, or part of one, is declared once, at
    its first use. `notes` are what layers had to say to the operator."""

    def __init__(self, trace: Trace, source: ModelSource, shard: Shard | None = None) -> None:
        self.trace = trace
        self.shard = shard or Shard()
        quantization = source.quantization
        self.notes = [] if quantization is None else list(quantization.notes)
        self._source = source
        self._bound: dict[str, Tensor] = {}

    def has(self, name: str) -> bool:
        """Does the source have a tensor of this name, or packed integers that make one?"""
        return self._source.has(name) or has_packed(self._source, name.removesuffix(".weight"))

    def block_elements(self, name: str) -> int:
        """How many elements of a row of the tensor `name` are stored together.

        Raises:
            WeightsError: it is missing.
        """
        if has_packed(self._source, name.removesuffix(".weight")):
            return BLOCK_COLUMNS
        module = name.removesuffix(".weight")
        if is_scaled(self._source, module):
            block = quantization_of(self._source, module).block
            return 1 if block is None else block[1]
        return DTYPES[self._source.tensor(name).dtype].block_elements

    def note(self, text: str) -> None:
        """Keep something to tell the operator, once."""
        if text not in self.notes:
            self.notes.append(text)

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """The weight of `linear` or `embedding`, [out, in], in the type it is stored in; or some of
        its rows, or of its columns: a part that is whole is no part.

        Raises:
            WeightsError: it is missing, or of another shape or type, or the columns would cut a
                block of its type.
        """
        if has_packed(self._source, name.removesuffix(".weight")):
            return self._packed(name, shape, rows or Part(0, shape[0], shape[0]), columns)
        location = self._source.tensor(name)
        self._check_unscaled(location)
        if location.shape != shape or location.dtype not in MATRIX_DTYPES:
            raise WeightsError(
                f"{self._source.path}: {name} is {location.dtype} {format_shape(location.shape)}, "
                f"the configuration asks for {format_shape(shape)}"
            )
        return self._stored(name, location, rows, columns)

    def stack(
        self,
        experts: str,
        module: str,
        shape: tuple[int, int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """The weights of `module` of all experts, [experts, out, in], or of each some rows or some
        columns: one tensor `<experts>.<module>.weight` as it is stored, or made of
        `<experts>.<i>.<module>.weight`.

        Raises:
            WeightsError: one is missing, or of another shape or type, or the columns would cut a
                block of its type.
        """
        count, whole = shape[0], f"{experts}.{module}.weight"
        if self._source.has(whole):
            return self._stored_stack(whole, shape, rows, columns)
        parts = [
            self.matrix(f"{experts}.{i}.{module}.weight", shape[1:], rows=rows, columns=columns)
            for i in range(count)
        ]
        return self._stack(parts[0].name.replace(f"{experts}.0.", f"{experts}.", 1), parts)

    def _stored_stack(
        self,
        name: str,
        shape: tuple[int, int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        """A tensor that is a stack in its file. Some columns of each matrix, which are in no one
        place, are made a stack anew."""
        location = self._source.tensor(name)
        self._check_unscaled(location)
        if location.shape != shape or location.dtype not in MATRIX_DTYPES:
            raise WeightsError(
                f"{self._source.path}: {name} is {location.dtype} {format_shape(location.shape)}, "
                f"the configuration asks for {format_shape(shape)}"
            )
        matrix_bytes = tensor_bytes(location.dtype, shape[1:])
        if columns is not None and not columns.whole:
            matrices = [
                replace(location, shape=shape[1:], offset=location.offset + i * matrix_bytes)
                for i in range(shape[0])
            ]
            parts = [
                self._stored(f"{name}[{i}]", matrix, None, columns)
                for i, matrix in enumerate(matrices)
            ]
            return self._stack(parts[0].name.replace("[0]", ""), parts)
        if rows is None or rows.whole:
            return self._declare(name, location, shape)
        begin = location.offset + tensor_bytes(location.dtype, (rows.begin, shape[2]))
        return self._declare(
            f"{name}.rows{rows.begin}-{rows.end}",
            replace(location, offset=begin),
            (shape[0], rows.size, shape[2]),
            matrix_bytes,
        )

    def _stack(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        if name not in self._bound:
            self._bound[name] = self.trace.stack(name, parts)
        return self._bound[name]

    def scaled(
        self,
        module: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> ScaledMatrix | None:
        """The weight of `module`, [out, in], or a part of it, with its scales; None where it is not
        stored in 8 bits with scales.

        Raises:
            WeightsError: it is of another shape, or it and its scales are not what config.json
                says, or the columns would cut a block that shares a scale.
        """
        if not is_scaled(self._source, module):
            return None
        location = self._source.tensor(f"{module}.weight")
        if location.shape != shape:
            raise WeightsError(
                f"{self._source.path}: {location.name} is {format_shape(location.shape)}, "
                f"the configuration asks for {format_shape(shape)}"
            )
        scales = part_of_scales(read_scales(self._source, module, shape), location, rows, columns)
        weight = self._stored(location.name, location, rows, columns)
        key = f"{weight.name}.scales"
        if key not in self._bound:
            self._bound[key] = self._constant(key, scales.values)
        quantization = quantization_of(self._source, module)
        return ScaledMatrix(weight, self._bound[key], scales.block, quantization.int8_activations)

    def _stored(
        self, name: str, location: TensorLocation, rows: Part | None, columns: Part | None
    ) -> Tensor:
        """The matrix at `location`, or a part of it, as it lies there."""
        key, skipped, stride, shape = name, 0, 0, location.shape
        row_bytes = tensor_bytes(location.dtype, (1, shape[1]))
        if rows is not None and not rows.whole:
            key = f"{name}.rows{rows.begin}-{rows.end}"
            skipped, shape = rows.begin * row_bytes, (rows.size, shape[1])
        elif columns is not None and not columns.whole:
            key = f"{name}.columns{columns.begin}-{columns.end}"
            skipped, shape = self._skipped_columns(location, columns), (shape[0], columns.size)
            stride = row_bytes
        begin = replace(location, offset=location.offset + skipped)
        return self._declare(key, begin, shape, stride)

    def _declare(
        self, name: str, location: TensorLocation, shape: tuple[int, ...], row_stride: int = 0
    ) -> Tensor:
        """What lies at the beginning of `location`, of another shape, once."""
        if name not in self._bound:
            self._bound[name] = self.trace.weight(
                name,
                location.dtype,
                shape,
                file=self.trace.file(location.file),
                offset=location.offset,
                row_stride=row_stride,
            )
        return self._bound[name]

    def _packed(
        self, name: str, shape: tuple[int, int], rows: Part, columns: Part | None
    ) -> Tensor:
        """A matrix of packed integers, or a part of it: assembled when the program is bound."""
        columns = columns or Part(0, shape[1], shape[1])
        key = name
        for what, part in (("rows", rows), ("columns", columns)):
            key += "" if part.whole else f".{what}{part.begin}-{part.end}"
        if key in self._bound:
            return self._bound[key]
        quantization = self._source.quantization
        assert isinstance(quantization, GroupQuantization)
        packed = packed_matrix(self._source, quantization, name.removesuffix(".weight"), shape)
        if packed.note:
            self.note(packed.note)
        if columns.begin % BLOCK_COLUMNS or columns.size % BLOCK_COLUMNS:
            raise WeightsError(
                f"{self._source.path}: columns {columns.begin} to {columns.end} of {name}"
                f" would cut a block of {BLOCK_COLUMNS} packed integers"
            )
        values, scales, zeros, groups = (self._part(part) for part in packed.parts)
        entry = AssembledEntry(
            key,
            packed.dtype,
            (rows.size, columns.size),
            packed.packing,
            (values, scales, zeros, groups),
            rows.begin,
            columns.begin,
        )
        self._bound[key] = self.trace.assembled(entry)
        return self._bound[key]

    def _check_unscaled(self, location: TensorLocation) -> None:
        """Only the matrices of linear layers may have scales beside them."""
        if location.dtype in SCALED_DTYPES:
            raise WeightsError(
                f"{self._source.path}: {location.name} is stored as {location.dtype}, which is"
                " supported for linear layers only; leave this tensor unquantized"
            )

    def _part(self, location: TensorLocation | None) -> str | None:
        """Declares a tensor that a matrix is made of; its name."""
        if location is not None and location.name not in self._bound:
            file = self.trace.file(location.file)
            self._bound[location.name] = self.trace.weight(
                location.name, location.dtype, location.shape, file=file, offset=location.offset
            )
        return None if location is None else location.name

    def _skipped_columns(self, location: TensorLocation, columns: Part) -> int:
        """Bytes of a row before `columns`."""
        block = DTYPES[location.dtype]
        if columns.begin % block.block_elements or columns.end % block.block_elements:
            raise WeightsError(
                f"{self._source.path}: columns {columns.begin} to {columns.end} of {location.name}"
                f" would cut a block of {block.block_elements} elements of {location.dtype}"
            )
        return columns.begin // block.block_elements * block.block_bytes

    def vector(self, name: str, length: int, *, part: Part | None = None) -> Tensor:
        """A norm or bias, f32 [length], or a part of it.

        Raises:
            WeightsError: it is missing, or of another shape or type.
        """
        location = self._source.tensor(name)
        self._check_unscaled(location)
        if location.shape != (length,):
            shape = format_shape(location.shape)
            raise WeightsError(
                f"{self._source.path}: {name} is {shape}, the configuration asks for [{length}]"
            )
        key, begin, end = name, 0, length
        if part is not None and not part.whole:
            key, begin, end = f"{name}.part{part.begin}-{part.end}", part.begin, part.end
        if key not in self._bound:
            if location.dtype == "f32":
                file = self.trace.file(location.file)
                offset = location.offset + 4 * begin
                tensor = self.trace.weight(key, "f32", (end - begin,), file=file, offset=offset)
            else:
                tensor = self._constant(key, read_f32(location)[begin:end])
            self._bound[key] = tensor
        return self._bound[key]

    def row(self, name: str, index: int, shape: tuple[int, int]) -> Tensor:
        """Row `index` of the matrix `name` as an f32 vector.

        Raises:
            WeightsError: the matrix is missing or of another shape.
        """
        location = self._source.tensor(name)
        self._check_unscaled(location)
        if location.shape != shape:
            raise WeightsError(f"{self._source.path}: {name} is {format_shape(location.shape)}")
        return self._constant(f"{name}[{index}]", read_f32(location)[index])

    def frequencies(self, name: str, values: Sequence[float]) -> Tensor:
        """The f32 constant `name`, declared once; `values` are f32 numbers already."""
        if name not in self._bound:
            self._bound[name] = self._constant(name, np.asarray(values, dtype=np.float32))
        return self._bound[name]

    def _constant(self, name: str, values: np.ndarray) -> Tensor:
        data = np.ascontiguousarray(values, dtype="<f4").tobytes()
        return self.trace.constant(name, "f32", values.shape, data)
