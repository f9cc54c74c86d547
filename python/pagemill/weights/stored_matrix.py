"""A matrix, or a stack of matrices, as a checkpoint stores it: perhaps transposed.

matrix = StoredMatrix(source.tensor("h.0.mlp.c_fc.weight"), transposed=True)
matrix.shape         # (3072, 768), of a tensor [768, 3072]
matrix.rows(0, 64)   # f32 [64, 768]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import as_f32, read_bytes, read_f32

_SUFFIX = ".weight"


def module_of(tensor: TensorLocation) -> str:
    """The name of the module that a weight, called `<module>.weight` or `<module>`, belongs to."""
    return tensor.name.removesuffix(_SUFFIX)


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """`tensor`, f32, bf16 or f16, is [out, in], or a stack of such, [count, out, in]; if
    `transposed`, [in, out] or [count, in, out]."""

    tensor: TensorLocation
    transposed: bool = False

    @property
    def module(self) -> str:
        return module_of(self.tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """[out, in], or [count, out, in]."""
        *count, first, second = self.tensor.shape
        return (*count, second, first) if self.transposed else self.tensor.shape

    @property
    def stored_bytes(self) -> int:
        return tensor_bytes(self.tensor.dtype, self.tensor.shape)

    def divided(self) -> Iterator[StoredMatrix]:
        """The matrix; those of a stack `<module>` as `<module>.<i>.weight`."""
        if len(self.tensor.shape) == 2:
            yield self
            return
        count, *shape = self.tensor.shape
        size = tensor_bytes(self.tensor.dtype, shape)
        for i in range(count):
            name, offset = f"{self.module}.{i}{_SUFFIX}", self.tensor.offset + i * size
            tensor = replace(self.tensor, name=name, shape=tuple(shape), offset=offset)
            yield replace(self, tensor=tensor)

    def rows(self, begin: int, count: int) -> npt.NDArray[np.float32]:
        """Rows of a matrix that is no stack, f32 [count, in].

        Raises:
            OSError: the file cannot be read.
        """
        tensor = self.tensor
        if not self.transposed:
            offset = tensor.offset + tensor_bytes(tensor.dtype, (begin, tensor.shape[1]))
            return read_f32(replace(tensor, shape=(count, tensor.shape[1]), offset=offset))
        element = tensor_bytes(tensor.dtype, (1, 1))
        stored = read_bytes(tensor).view(f"<u{element}").reshape(tensor.shape)
        own = np.ascontiguousarray(stored[:, begin : begin + count].T)
        return as_f32(tensor.dtype, own.shape, own.reshape(-1).view(np.uint8))
