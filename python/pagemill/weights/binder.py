"""Declares a source's tensors in a trace, under the names and in the forms that ops want.

A matrix is used as it lies in its file. So is a small operand (norm, bias) that is stored as f32;
another travels as an f32 constant of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.ops.dtypes import MATRIX_DTYPES
from pagemill.ops.trace import Tensor, Trace, format_shape
from pagemill.weights.errors import WeightsError
from pagemill.weights.read import read_f32
from pagemill.weights.source import ModelSource


class WeightBinder:
    """Binds one source to one trace; each tensor is declared once, at its first use."""

    def __init__(self, trace: Trace, source: ModelSource) -> None:
        self.trace = trace
        self._source = source
        self._bound: dict[str, Tensor] = {}

    def has(self, name: str) -> bool:
        """Does the source have a tensor of this name?"""
        return self._source.has(name)

    def matrix(self, name: str, shape: tuple[int, int]) -> Tensor:
        """The weight of `linear` or `embedding`, [out, in], in the type it is stored in.

        Raises:
            WeightsError: it is missing, or of another shape or type.
        """
        location = self._source.tensor(name)
        if location.shape != shape or location.dtype not in MATRIX_DTYPES:
            raise WeightsError(
                f"{self._source.path}: {name} is {location.dtype} {format_shape(location.shape)}, "
                f"the configuration asks for {format_shape(shape)}"
            )
        if name not in self._bound:
            file = self.trace.file(location.file)
            self._bound[name] = self.trace.weight(
                name, location.dtype, shape, file=file, offset=location.offset
            )
        return self._bound[name]

    def vector(self, name: str, length: int) -> Tensor:
        """A norm or bias, f32 [length].

        Raises:
            WeightsError: it is missing, or of another shape or type.
        """
        location = self._source.tensor(name)
        if location.shape != (length,):
            shape = format_shape(location.shape)
            raise WeightsError(
                f"{self._source.path}: {name} is {shape}, the configuration asks for [{length}]"
            )
        if name not in self._bound:
            if location.dtype == "f32":
                file = self.trace.file(location.file)
                tensor = self.trace.weight(
                    name, "f32", (length,), file=file, offset=location.offset
                )
            else:
                tensor = self._constant(name, read_f32(location))
            self._bound[name] = tensor
        return self._bound[name]

    def row(self, name: str, index: int, shape: tuple[int, int]) -> Tensor:
        """Row `index` of the matrix `name` as an f32 vector.

        Raises:
            WeightsError: the matrix is missing or of another shape.
        """
        location = self._source.tensor(name)
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
