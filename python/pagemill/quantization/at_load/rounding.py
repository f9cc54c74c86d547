"""What the writer of a quantized file knows of a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pagemill.weights.location import TensorLocation

Floats = npt.NDArray[np.float32]


class RoundedPart(NamedTuple):
    """One tensor of a quantized matrix, `<module>.<suffix>`: [ceil(rows / row_step), columns] of
    the element type `dtype`, as safetensors names it."""

    suffix: str
    dtype: str
    row_step: int
    columns: int


class RowSource(Protocol):
    """A matrix that is read some rows at a time, such as `StoredMatrix`; several threads may.

    1. `module` is the name of its module, `shape` [rows, columns].
    2. `tensor` is what it is read from, for messages, and `stored_bytes` how much that is.
    3. `rows` reads some of them, f32 [count, columns].
    """

    @property
    def module(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def tensor(self) -> TensorLocation: ...

    @property
    def stored_bytes(self) -> int: ...

    def rows(self, begin: int, count: int) -> Floats: ...


class RowWriter(Protocol):
    """What becomes of matrices in a file. Pure; several threads may use one.

    1. `parts` are the tensors of a matrix with rows of `columns`.
    2. `round` makes those of some rows, f32 [rows, columns], all finite. They begin at a multiple
       of `row_step`, the rows that are rounded together.
    """

    @property
    def row_step(self) -> int: ...

    def parts(self, columns: int) -> Sequence[RoundedPart]: ...

    def round(self, values: Floats) -> Sequence[npt.NDArray[Any]]: ...


class Rounding(RowWriter, Protocol):
    """A format of matrices.

    1. `section` is what a checkpoint in this format has as `quantization_config`.
    2. `refusal` says why a matrix [rows, columns], or a stack of such, cannot have this format; ""
       if it can.
    """

    @property
    def section(self) -> Mapping[str, Any]: ...

    def refusal(self, shape: Sequence[int]) -> str: ...
