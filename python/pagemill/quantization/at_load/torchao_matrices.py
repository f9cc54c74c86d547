"""Matrices as torchao stores them in safetensors: integers or e4m3 numbers, with a scale and
perhaps a zero point for each block of elements.

    matrices = torchao_matrices(source)
    matrices[0].rows(0, 64)   # f32 [64, 576]

Beside `<module>._weight_qdata` lie `_weight_scale` and `_weight_zero_point`, or both in one. A text
in the header of the file, `<module>.weight`, is a JSON object that names the type of the tensor and
has its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pagemill.quantization.torchao import SCALE, VALUES, ZERO_POINT
from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import parse_json, shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, is_zero, read_bytes, read_some
from pagemill.weights.safetensors import read_metadata
from pagemill.weights.source import ModelSource

_PREFIX = "_weight_"
_SCALE_AND_ZERO = "_weight_scale_and_zero"
_FACTORS = "_weight_act_pre_scale"  # of columns of activations
_MAX_SIDE = 1 << 31
_TILE_ROWS, _TILE_COLUMNS = 8, 128
_PADDED = 1024  # columns of tiles are a multiple of it

Floats = npt.NDArray[np.float32]


def torchao_matrices(source: ModelSource) -> Sequence[TorchAoMatrix]:
    """All of `source` if kernels cannot use each as it is stored; none otherwise.

    Raises:
        WeightsError: a tensor is missing or does not fit the others, or its type is not supported.
        OSError: a file cannot be read.
    """
    parts: dict[str, list[str]] = {}
    for tensor in source.tensors:
        module, _, part = tensor.name.rpartition(".")
        if part.startswith(_PREFIX):
            parts.setdefault(module, []).append(tensor.name)
    texts: dict[str, str] = {}
    for file in sorted({tensor.file for tensor in source.tensors}) if parts else ():
        texts |= read_metadata(Path(file))
    matrices = [_open(source, module, names, texts) for module, names in parts.items()]
    return matrices if any(matrix.is_packed for matrix in matrices) else ()


@dataclass(frozen=True, slots=True)
class TorchAoMatrix:
    """`tensor` has the elements; `parts` are the names of all tensors of the matrix. Elements of a
    block, rows and columns, share a scale."""

    module: str
    tensor: TensorLocation
    shape: tuple[int, int]
    parts: Sequence[str]
    block: tuple[int, int]
    scales: TensorLocation
    zeros: TensorLocation | None
    _type: _Type

    @property
    def stored_bytes(self) -> int:
        return tensor_bytes(self.tensor.dtype, self.tensor.shape)

    @property
    def is_packed(self) -> bool:
        """False if elements and scales are what multiplies."""
        return self._type.is_packed or (self.zeros is not None and not is_zero(self.zeros))

    def rows(self, begin: int, count: int) -> Floats:
        """Rows of the matrix, f32 [count, in].

        Raises:
            OSError: the file cannot be read.
        """
        values = self._type.values(self.tensor, begin, count)[:, : self.shape[1]]
        rows = np.arange(begin, begin + count) // self.block[0]
        scales = self._spread(self._type.of_rows(self.scales, rows, 0))
        if self.zeros is None:
            return values * scales
        zeros = self._spread(self._type.of_rows(self.zeros, rows, 1))
        return values * scales + zeros if self._type.adds else (values - zeros) * scales

    def _spread(self, numbers: Floats) -> Floats:
        return np.repeat(numbers, self.block[1], axis=1)[:, : self.shape[1]]


class _Type(NamedTuple):
    """A class of the library. `values` are rows of elements as numbers, perhaps with columns that
    fill a tile up; `of_rows` are scales (0) or zero points (1) of rows [count, blocks]. Zero points
    are subtracted from elements, or, if it `adds`, added to products."""

    dtype: str
    values: Callable[[TensorLocation, int, int], Floats]
    of_rows: Callable[[TensorLocation, npt.NDArray[np.int64], int], Floats]
    is_packed: bool
    adds: bool = False
    zeros: str = ZERO_POINT
    scales: str = SCALE


def _plain(tensor: TensorLocation, begin: int, count: int) -> Floats:
    return read_some(tensor, slice(begin, begin + count))


def _nibbles(tensor: TensorLocation, begin: int, count: int) -> Floats:
    """Two's complement of 4 bits, the first of a byte in the lower ones."""
    stored = read_bytes(tensor).reshape(tensor.shape)[begin : begin + count]
    pairs = np.stack([stored & 15, stored >> 4], axis=-1) ^ 8
    return pairs.reshape(count, -1).astype(np.float32) - 8


def _tiles(tensor: TensorLocation, begin: int, count: int) -> Floats:
    """Integers as tensor cores take them: words [rows / 8, columns / 128, 32, 4] of 8 columns each,
    of 32 threads four for each row."""
    first, last = begin // _TILE_ROWS, -(-(begin + count) // _TILE_ROWS)
    words = read_bytes(tensor).view("<u4").reshape(tensor.shape)[first:last]
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    q = (words[..., None] >> shifts & 15).astype(np.float32)
    # Row, pair of columns; 32 columns; second of a pair, pair's eight columns.
    q = q.reshape(last - first, tensor.shape[1], _TILE_ROWS, 4, 4, 2, 4)
    rows = q.transpose(0, 2, 1, 4, 6, 3, 5).reshape((last - first) * _TILE_ROWS, -1)
    skipped = begin - first * _TILE_ROWS
    return rows[skipped : skipped + count] - 8


def _by_row(location: TensorLocation, rows: npt.NDArray[np.int64], which: int) -> Floats:
    """Of [rows of blocks, blocks]."""
    del which
    return read_some(location, rows)


def _by_column(location: TensorLocation, rows: npt.NDArray[np.int64], which: int) -> Floats:
    """Of [blocks, rows]."""
    del which
    return read_some(location, (slice(None), rows)).T


def _interleaved(location: TensorLocation, rows: npt.NDArray[np.int64], which: int) -> Floats:
    """Of [blocks, rows, 2]: scales and zero points."""
    return read_some(location, (slice(None), rows, which)).T


_TYPES: Mapping[str, _Type] = {
    "Float8Tensor": _Type("f8_e4m3", _plain, _by_row, is_packed=False),
    "Int4Tensor": _Type("i8", _nibbles, _by_column, is_packed=True, adds=True),
    "Int4TilePackedTo4dTensor": _Type(
        *("i32", _tiles, _interleaved),
        is_packed=True,
        adds=True,
        zeros=_SCALE_AND_ZERO,
        scales=_SCALE_AND_ZERO,
    ),
    "Int8Tensor": _Type("i8", _plain, _by_row, is_packed=False),
    "IntxUnpackedToInt8Tensor": _Type("i8", _plain, _by_row, is_packed=True),
}


def _open(
    source: ModelSource, module: str, parts: Sequence[str], texts: Mapping[str, str]
) -> TorchAoMatrix:
    name = f"{module}.weight"
    if name not in texts:
        raise WeightsError(f"{source.path}: the headers of files do not say what {name} is")
    value = parse_json(texts[name].encode(), f"the header's {name}")
    stated = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    kind, fields = stated.get("_type"), stated.get("_data")
    if not isinstance(kind, str) or kind not in _TYPES or not isinstance(fields, dict):
        known = ", ".join(_TYPES)
        raise WeightsError(
            f"{source.path}: {name} is a {shown(kind)} of torchao; supported: {known}"
        )
    if f"{module}.{_FACTORS}" in parts:
        raise WeightsError(
            f"{source.path}: {module} has {_FACTORS}: factors of activations are not supported"
        )
    fields, of = cast("dict[str, Any]", fields), _TYPES[kind]
    tensor = source.tensor(f"{module}.{VALUES}")
    shape = _sizes(source, name, fields.get("shape", list(tensor.shape)))
    block = _sizes(source, name, fields.get("block_size"))
    block = (min(block[0], shape[0]), min(block[1], max(shape[1], _PADDED)))
    zeros = f"{module}.{of.zeros}"
    matrix = TorchAoMatrix(
        module,
        tensor,
        shape,
        parts,
        block,
        source.tensor(f"{module}.{of.scales}"),
        source.tensor(zeros) if source.has(zeros) or of.adds else None,
        of,
    )
    _check(source, matrix, kind)
    return matrix


def _check(source: ModelSource, matrix: TorchAoMatrix, kind: str) -> None:
    """Rejects tensors of other types or shapes than a matrix of the class `kind` has."""
    (rows, columns), (block_rows, block_columns) = matrix.shape, matrix.block
    blocks = (-(-rows // block_rows), -(-columns // block_columns))
    elements, numbers = matrix.shape, blocks
    if kind == "Int4Tensor":
        elements, numbers = (rows, columns // 2), (blocks[1], rows)
    elif kind == "Int4TilePackedTo4dTensor":
        tiles = (-(-rows // _TILE_ROWS), -(-columns // _PADDED) * (_PADDED // _TILE_COLUMNS))
        elements = (*tiles, 32, 4)
        numbers = (-(-tiles[1] * _TILE_COLUMNS // block_columns), tiles[0] * _TILE_ROWS, 2)
    expected: list[tuple[TensorLocation, Sequence[str], tuple[int, ...]]] = [
        (matrix.tensor, (_TYPES[kind].dtype,), elements),
        (matrix.scales, REAL_DTYPES, numbers),
    ]
    if matrix.zeros is not None:
        expected.append((matrix.zeros, (*REAL_DTYPES, "i8"), numbers))
    for location, dtypes, shape in expected:
        if location.dtype not in dtypes or location.shape != shape:
            raise WeightsError(
                f"{source.path}: {location.name} is {location.dtype} {list(location.shape)}; that"
                f" of a {kind} {list(matrix.shape)} in blocks of {list(matrix.block)} must be"
                f" {' or '.join(dtypes)} {list(shape)}"
            )


def _sizes(source: ModelSource, name: str, value: object) -> tuple[int, int]:
    match value:
        case [int(rows), int(columns)] if 0 < rows < _MAX_SIDE and 0 < columns < _MAX_SIDE:
            return rows, columns
        case _:
            pass
    raise WeightsError(
        f"{source.path}: {name} has the sizes {shown(value)}; supported: [rows, columns]"
    )
