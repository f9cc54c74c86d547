"""Matrices as HQQ stores them in safetensors: integers of 4 or 2 bits, with a scale and a zero
point, both real numbers, for each group of elements.

    matrices = hqq_matrices(source)
    matrices[0].rows(0, 64)   # f32 [64, 576]

`<module>.W_q` has the integers, `scale` and `zero` the numbers, and tensors of one element each the
settings. A group is `group_size` consecutive elements (axis 1), or every n-th of n groups (axis 0).
Bytes hold the integers of 8 / bits equal parts of the matrix, the first in the highest bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagemill.ops.dtypes import DTYPES, tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, as_f32, read_bytes, read_integers
from pagemill.weights.source import ModelSource

_INTEGERS = ".W_q"
_BITS = (2, 4)
_OTHER_PARTS = (".bias",)  # of a module, which belong to no matrix

Floats = npt.NDArray[np.float32]


def hqq_matrices(source: ModelSource) -> Sequence[HqqMatrix]:
    """All of `source`.

    Raises:
        WeightsError: a tensor is missing or does not fit the others, or a setting is not supported.
        OSError: a file cannot be read.
    """
    parts: dict[str, list[str]] = {}
    for tensor in source.tensors:
        module, _, part = tensor.name.rpartition(".")
        if f".{part}" not in _OTHER_PARTS:
            parts.setdefault(module, []).append(tensor.name)
    names = (tensor.name for tensor in source.tensors)
    modules = (name.removesuffix(_INTEGERS) for name in names if name.endswith(_INTEGERS))
    return [_open(source, module, parts[module]) for module in modules]


@dataclass(frozen=True, slots=True)
class HqqMatrix:
    """`tensor` has the integers; `parts` are the names of all tensors of the matrix."""

    module: str
    tensor: TensorLocation
    shape: tuple[int, int]
    parts: Sequence[str]
    _bits: int
    _group: int | None
    """Consecutive elements of a group; None: groups take turns."""
    _scales: TensorLocation
    _zeros: TensorLocation

    @property
    def stored_bytes(self) -> int:
        return tensor_bytes(self.tensor.dtype, self.tensor.shape)

    def rows(self, begin: int, count: int) -> Floats:
        """Rows of the matrix, f32 [count, in].

        Raises:
            OSError: a file cannot be read.
        """
        columns = self.shape[1]
        elements = np.arange(begin * columns, (begin + count) * columns)
        stored = read_bytes(self.tensor)
        parts, places = elements // len(stored), elements % len(stored)
        q = stored[places] >> (8 - self._bits * (parts + 1)).astype(np.uint8)
        q &= np.uint8((1 << self._bits) - 1)
        if self._group is None:
            groups = elements % math.prod(self._scales.shape)
        else:
            groups = elements // self._group
        values = (q - _numbers(self._zeros, groups)) * _numbers(self._scales, groups)
        return values.reshape(count, columns)


def _open(source: ModelSource, module: str, parts: Sequence[str]) -> HqqMatrix:
    tensor = source.tensor(f"{module}{_INTEGERS}")
    bits, axis = (_setting(source, module, name) for name in ("nbits", "axis"))
    group = _setting(source, module, "group_size")
    if bits not in _BITS or axis not in (0, 1) or group < 1:
        raise WeightsError(
            f"{source.path}: {module} has {bits} bits, groups of {group}, axis {axis}; supported:"
            f" {' and '.join(map(str, _BITS))} bits, groups of 1 and more, axis 0 and 1"
        )
    shape = _integers(source, f"{module}.shape", 2)
    elements = math.prod(shape)
    size = _bytes(source, tensor)
    if min(shape) < 1 or size * 8 != elements * bits or elements % group:
        raise WeightsError(
            f"{source.path}: {tensor.name} has {size} bytes, which are no {list(shape)} integers of"
            f" {bits} bits in groups of {group}"
        )
    numbers = [source.tensor(f"{module}.{name}") for name in ("scale", "zero")]
    for location in numbers:
        if location.dtype not in REAL_DTYPES or math.prod(location.shape) != elements // group:
            raise WeightsError(
                f"{source.path}: {location.name} is {location.dtype} {list(location.shape)}; it"
                f" must be {elements // group} numbers in f32, bf16 or f16"
            )
    consecutive = group if axis == 1 else None
    return HqqMatrix(module, tensor, (shape[0], shape[1]), parts, bits, consecutive, *numbers)


def _setting(source: ModelSource, module: str, name: str) -> int:
    return _integers(source, f"{module}.{name}", 1)[0]


def _integers(source: ModelSource, name: str, count: int) -> tuple[int, ...]:
    location = source.tensor(name)
    if location.dtype in ("i32", "i64") and math.prod(location.shape) == count:
        return tuple(int(number) for number in read_integers(location).reshape(count))
    raise WeightsError(
        f"{source.path}: {name} is {location.dtype} {list(location.shape)}; it must be {count}"
        " integers of 32 or 64 bits"
    )


def _bytes(source: ModelSource, tensor: TensorLocation) -> int:
    """Integers may be stored as elements of any type."""
    try:
        return tensor_bytes(tensor.dtype, tensor.shape)
    except ValueError as error:
        raise WeightsError(f"{source.path}: {tensor.name}: {error}") from error


def _numbers(location: TensorLocation, places: npt.NDArray[np.int64]) -> Floats:
    """The elements at these places."""
    size = DTYPES[location.dtype].block_bytes
    chosen = read_bytes(location).reshape(-1, size)[places]
    return as_f32(location.dtype, places.shape, np.ascontiguousarray(chosen).reshape(-1))
