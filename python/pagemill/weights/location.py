"""The location of a tensor on disk."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pagemill.tensor.dtypes import tensor_bytes

if TYPE_CHECKING:
    from pagemill.ops.shard import Part


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """A dense row-major tensor, `offset` bytes from the start of `file`; dtype names as in
    `pagemill.tensor.dtypes`. If `negated_exp`, what is stored are -exp(x) of its values x."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    negated_exp: bool = False

    def fits(self, shape: tuple[int, ...]) -> bool:
        """True if it has `shape`, without regard to dimensions of 1, which GGUF leaves out."""
        return [dim for dim in self.shape if dim != 1] == [dim for dim in shape if dim != 1]

    def as_stack(self, shape: tuple[int, int, int]) -> TensorLocation:
        """A tensor of matrices one below the other as the stack of `shape` that its bytes are;
        another one as it is."""
        if self.shape == (shape[0] * shape[1], shape[2]):
            return replace(self, shape=shape)
        return self

    def as_matrix(self, shape: tuple[int, int]) -> TensorLocation:
        """A grid of vectors as the matrix of `shape` that its bytes are, a row for each vector;
        another tensor as it is."""
        rows, columns = self.shape[:-1], self.shape[-1:]
        if len(rows) > 1 and (math.prod(rows), *columns) == shape:
            return replace(self, shape=shape)
        return self

    def some(self, matrices: Part | None) -> TensorLocation:
        """These matrices of a stack, by default all."""
        if matrices is None or matrices.whole:
            return self
        return replace(
            self,
            name=f"{self.name}.matrices{matrices.begin}-{matrices.end}",
            shape=(matrices.size, *self.shape[1:]),
            offset=self.offset + matrices.begin * tensor_bytes(self.dtype, self.shape[1:]),
        )
