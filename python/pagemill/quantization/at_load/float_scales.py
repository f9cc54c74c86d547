"""Scales that a checkpoint has as bytes, exponents of powers of two (e8m0), several for each row of
a matrix (MXFP8), as f32: kernels then use them in the file.

    scales = ByteScales(source.tensor("a.weight_scale"))
    scales.rows(0, 64)   # f32 [64, 48]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from pagemill.quantization.at_load.rounding import Floats, RoundedPart
from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import e8m0_values, read_bytes


@dataclass(frozen=True, slots=True)
class ByteScales:
    """`tensor`, u8 [rows, blocks], is `<module>.<suffix>`."""

    tensor: TensorLocation

    @property
    def module(self) -> str:
        return self.tensor.name.rpartition(".")[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def parts(self) -> Sequence[str]:
        return [self.tensor.name]

    @property
    def stored_bytes(self) -> int:
        return tensor_bytes(self.tensor.dtype, self.tensor.shape)

    def rows(self, begin: int, count: int) -> Floats:
        """Rows as f32 [count, blocks].

        Raises:
            OSError: the file cannot be read.
        """
        stored = read_bytes(self.tensor).reshape(self.tensor.shape)
        return e8m0_values(stored[begin : begin + count])


@dataclass(frozen=True, slots=True)
class FloatScales:
    """Writes numbers as they are, under their name."""

    suffix: str
    row_step = 1

    def parts(self, columns: int) -> Sequence[RoundedPart]:
        return (RoundedPart(self.suffix, "F32", 1, columns),)

    def round(self, values: Floats) -> Sequence[npt.NDArray[Any]]:
        return (values,)
