"""Matrices as HQQ stores them in safetensors: integers of 1 to 4 or 8 bits, with a scale and a zero
point, both real numbers, for each group of elements.

    matrices = hqq_matrices(source)
    matrices[0].rows(0, 64)   # f32 [64, 576]

`<module>.W_q` has the integers, `scale` and `zero` the numbers, and tensors of one element each the
settings; instead of the two, `zero_scale` has first all zero points and then all scales, if they
were to be offloaded. A group is `group_size` consecutive elements (axis 1), or every n-th of n
groups (axis 0). Bytes hold the integers of 8 / bits equal parts of the matrix, the first in the
highest bits; of 3 bits, words of 32 bits hold those of 10 parts, of which the last is filled up: a
part is whole groups (axis 1), or one or more integers of each group (axis 0).

Source: `BitPack` and `HQQLinear.state_dict` of https://github.com/mobiusml/hqq, which writes no
scales that are quantized themselves to safetensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, read_bytes, read_integers, read_some
from pagemill.weights.source import ModelSource

_INTEGERS = ".W_q"
_BITS = (1, 2, 3, 4, 8)
_WORD = "<u4"  # of ten integers of 3 bits
_TOGETHER = "zero_scale"
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
        stored, per_word = read_bytes(self.tensor), _per_word(self._bits)
        words = stored.view(_WORD) if self._bits == 3 else stored
        parts, places = elements // len(words), elements % len(words)
        q = words[places] >> (self._bits * (per_word - 1 - parts)).astype(words.dtype)
        q = (q & words.dtype.type((1 << self._bits) - 1)).astype(np.uint8)
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
            f" {', '.join(map(str, _BITS))} bits, groups of 1 and more, axis 0 and 1"
        )
    shape = _integers(source, f"{module}.shape", 2)
    elements = math.prod(shape)
    size = _bytes(source, tensor)
    if min(shape) < 1 or elements % group or size != _stored_bytes(elements, bits, group, axis):
        raise WeightsError(
            f"{source.path}: {tensor.name} has {size} bytes, which are no {list(shape)} integers of"
            f" {bits} bits in groups of {group}"
        )
    numbers = _scales_and_zeros(source, module)
    for location in numbers:
        if location.dtype not in REAL_DTYPES or math.prod(location.shape) != elements // group:
            raise WeightsError(
                f"{source.path}: {location.name} is {location.dtype} {list(location.shape)}; it"
                f" must be {elements // group} numbers in f32, bf16 or f16"
            )
    consecutive = group if axis == 1 else None
    return HqqMatrix(module, tensor, (shape[0], shape[1]), parts, bits, consecutive, *numbers)


def _per_word(bits: int) -> int:
    """The integers of a stored byte, or word of 3 bits."""
    return 10 if bits == 3 else 8 // bits


def _stored_bytes(elements: int, bits: int, group: int, axis: int) -> int:
    """Of all integers; 0 if they do not fill bytes. Of 3 bits, parts are whole rows of `columns`,
    and the last part is filled up."""
    if bits != 3:
        return elements * bits // 8 if elements * bits % 8 == 0 else 0
    columns = group if axis == 1 else elements // group
    return -(-elements // columns // 10) * columns * 4


def _scales_and_zeros(source: ModelSource, module: str) -> tuple[TensorLocation, TensorLocation]:
    """Those of all groups, which may be one tensor."""
    if not source.has(f"{module}.{_TOGETHER}"):
        return source.tensor(f"{module}.scale"), source.tensor(f"{module}.zero")
    both = source.tensor(f"{module}.{_TOGETHER}")
    if both.dtype not in REAL_DTYPES or not both.shape or both.shape[0] != 2:
        raise WeightsError(
            f"{source.path}: {both.name} is {both.dtype} {list(both.shape)}; it must be zero points"
            " and scales [2, groups] in f32, bf16 or f16"
        )
    shape = both.shape[1:]
    zeros = replace(both, shape=shape)
    return replace(zeros, offset=both.offset + tensor_bytes(both.dtype, shape)), zeros


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
    return read_some(replace(location, shape=(math.prod(location.shape),)), places)
