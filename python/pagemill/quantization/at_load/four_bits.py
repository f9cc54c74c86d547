"""Matrices of 4 bits as bitsandbytes stores them: codes of a table of 16 numbers (nf4, fp4), times
the largest magnitude of each block of 64, or so, consecutive elements.

    matrices = four_bit_matrices(source)
    matrices[0].shape         # (1536, 576), as its state says
    matrices[0].rows(0, 64)   # f32 [64, 576]

Beside `<module>.weight`, two codes a byte, the first in the upper bits, lie `absmax`, `quant_map`
and a JSON object in bytes, the state. If magnitudes are codes of 8 bits themselves (double
quantization), `nested_absmax` and `nested_quant_map` lie there, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import MAX_JSON_BYTES, parse_json, shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import read_bytes, read_f32
from pagemill.weights.source import ModelSource
from pagemill.weights.stored_matrix import module_of

_STATE = ".quant_state.bitsandbytes__"
_KINDS = ("nf4", "fp4")
_MAX_BLOCK = 1 << 20
_MAX_SIDE = 1 << 31
_MAX_F32 = float(np.finfo(np.float32).max)
_OF_BLOCKS = 32  # elements; columns and blocks are multiples of it

Floats = npt.NDArray[np.float32]


def four_bit_matrices(source: ModelSource) -> Sequence[FourBitMatrix]:
    """All of `source`, whose tables of codes are read.

    Raises:
        WeightsError: a tensor is missing or does not fit the others.
        OSError: a file cannot be read.
    """
    names = (tensor.name for tensor in source.tensors)
    return [_open(source, name) for name in names if _STATE in name]


@dataclass(frozen=True, slots=True)
class FourBitMatrix:
    """`tensor` has the codes; `parts` are the names of all tensors of the matrix. Magnitudes are
    read with the rows that they belong to."""

    tensor: TensorLocation
    shape: tuple[int, int]
    parts: Sequence[str]
    _table: Floats = field(repr=False)
    _absmax: TensorLocation
    _block: int
    _nested: _Nested | None

    @property
    def module(self) -> str:
        return module_of(self.tensor)

    @property
    def stored_bytes(self) -> int:
        return tensor_bytes(self.tensor.dtype, self.tensor.shape)

    def rows(self, begin: int, count: int) -> Floats:
        """Rows of the matrix, f32 [count, in].

        Raises:
            OSError: the file cannot be read.
        """
        columns = self.shape[1]
        first, last = begin * columns, (begin + count) * columns
        codes = read_bytes(self.tensor)[first // 2 : last // 2]
        values = np.empty((len(codes), 2), np.float32)
        values[:, 0], values[:, 1] = self._table[codes >> 4], self._table[codes & 15]
        # Blocks may begin in the middle of a row, but not of so many elements.
        groups = values.reshape(-1, _OF_BLOCKS)
        groups *= self._magnitudes(np.arange(first, last, _OF_BLOCKS) // self._block)[:, None]
        return groups.reshape(count, columns)

    def _magnitudes(self, blocks: npt.NDArray[np.int64]) -> Floats:
        """Those of these blocks."""
        if self._nested is None:
            return read_bytes(self._absmax).view("<f4")[blocks]
        nested = self._nested
        outer = read_bytes(nested.magnitudes).view("<f4")[blocks // nested.block]
        return nested.table[read_bytes(self._absmax)[blocks]] * outer + nested.offset


class _Nested(NamedTuple):
    """Magnitudes are codes of `table`, times one of `magnitudes` for `block` of them, plus
    `offset`."""

    table: Floats
    magnitudes: TensorLocation
    block: int
    offset: np.float32


def _open(source: ModelSource, state_name: str) -> FourBitMatrix:
    """The matrix whose state is the tensor `state_name`."""
    stem, _, kind = state_name.partition(_STATE)
    if kind not in _KINDS:
        raise _refusal(source, state_name, "its type", kind, " or ".join(_KINDS))
    location = source.tensor(state_name)
    if _bytes(source, location) > MAX_JSON_BYTES:
        raise WeightsError(f"{source.path}: {state_name} has more than {MAX_JSON_BYTES} bytes")
    state = _State(source, state_name, parse_json(bytes(read_bytes(location)), state_name))
    shape, block = state.shape(), state.size("blocksize")
    tensor = source.tensor(stem)
    elements = math.prod(shape)
    if _bytes(source, tensor) * 2 != elements:
        raise WeightsError(
            f"{source.path}: {stem} has {_bytes(source, tensor)} bytes, but the {elements}"
            f" elements that {state_name} says need half as many"
        )
    blocks = -(-elements // block)
    parts = [stem, state_name, f"{stem}.absmax", f"{stem}.quant_map"]
    table = _numbers(source, f"{stem}.quant_map", 16)
    if source.has(f"{stem}.nested_absmax"):
        inner, offset = state.size("nested_blocksize"), state.number("nested_offset")
        absmax = _located(source, f"{stem}.absmax", "u8", blocks)
        outer = _located(source, f"{stem}.nested_absmax", "f32", -(-blocks // inner))
        codes = _numbers(source, f"{stem}.nested_quant_map", 256)
        nested = _Nested(codes, outer, inner, np.float32(offset))
        parts += [f"{stem}.nested_absmax", f"{stem}.nested_quant_map"]
    else:
        absmax, nested = _located(source, f"{stem}.absmax", "f32", blocks), None
    return FourBitMatrix(tensor, shape, parts, table, absmax, block, nested)


class _State:
    """The JSON object of a matrix."""

    def __init__(self, source: ModelSource, name: str, value: object) -> None:
        if not isinstance(value, dict):
            raise _refusal(source, name, "its value", value, "an object")
        self._source, self._name = source, name
        self._entries: Mapping[str, Any] = cast("dict[str, Any]", value)

    def size(self, key: str) -> int:
        """The number of elements of a block."""
        value = self._entries.get(key)
        if type(value) is int and 0 < value <= _MAX_BLOCK and value % _OF_BLOCKS == 0:
            return value
        raise _refusal(self._source, self._name, key, value, f"multiples of {_OF_BLOCKS}")

    def number(self, key: str) -> float:
        value = self._entries.get(key)
        if isinstance(value, int | float) and abs(value) <= _MAX_F32:
            return float(value)
        raise _refusal(self._source, self._name, key, value, "numbers that f32 holds")

    def shape(self) -> tuple[int, int]:
        value = self._entries.get("shape")
        match value:
            case [int(rows), int(columns)] if 0 < rows < _MAX_SIDE and 0 < columns < _MAX_SIDE:
                return rows, columns
            case _:
                pass
        raise _refusal(self._source, self._name, "shape", value, "[rows, columns]")


def _numbers(source: ModelSource, name: str, count: int) -> Floats:
    return read_f32(_located(source, name, "f32", count)).reshape(count)


def _located(source: ModelSource, name: str, dtype: str, count: int) -> TensorLocation:
    location = source.tensor(name)
    if location.dtype == dtype and math.prod(location.shape) == count:
        return location
    raise WeightsError(
        f"{source.path}: {name} is {location.dtype} {list(location.shape)};"
        f" it must be {dtype} [{count}]"
    )


def _bytes(source: ModelSource, tensor: TensorLocation) -> int:
    """Codes may be stored as elements of any type."""
    try:
        return tensor_bytes(tensor.dtype, tensor.shape)
    except ValueError as error:
        raise WeightsError(f"{source.path}: {tensor.name}: {error}") from error


def _refusal(
    source: ModelSource, name: str, what: str, value: object, supported: str
) -> WeightsError:
    return WeightsError(
        f"{source.path}: {name}: {what} {shown(value)} is not supported; supported: {supported}"
    )
