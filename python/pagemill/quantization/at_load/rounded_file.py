"""Writes a safetensors file of matrices that are rounded when a model is loaded.

    fp8 = FORMATS["fp8"]
    write_rounded(path, [(fp8, matrix) for matrix in matrices], sys.stderr)   # by all cores

Where tensors lie follows from the shapes of matrices. Elements of four bytes come first, then of
two, then of one, so that each lies at a multiple of its size.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from pagemill.quantization.at_load.room import make_room
from pagemill.quantization.at_load.rounding import RoundedPart, RowSource, RowWriter
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.new_file import new_file, safetensors_header

_ELEMENT_BYTES = {"F32": 4, "I32": 4, "F16": 2, "I8": 1, "F8_E4M3": 1}
_CHUNK = 1 << 18  # elements that a thread rounds at a time: what its core's cache holds


class _Place(NamedTuple):
    """`part` of `matrix`, rounded by `rounding`, of which `rows` begin so many bytes behind the
    header."""

    rounding: RowWriter
    matrix: RowSource
    part: RoundedPart
    rows: int
    begin: int

    @property
    def name(self) -> str:
        return f"{self.matrix.module}.{self.part.suffix}"

    @property
    def row_bytes(self) -> int:
        return self.part.columns * _ELEMENT_BYTES[self.part.dtype]

    @property
    def end(self) -> int:
        return self.begin + self.rows * self.row_bytes


def write_rounded(
    path: Path,
    matrices: Sequence[tuple[RowWriter, RowSource]],
    progress: TextIO,
    *,
    values: bool = True,
) -> None:
    """Writes `matrices`, no stacks, each in its format, to a file that appears at `path` when it is
    complete; others of the folder may go for it (`make_room`). Without `values` all are zeros,
    which take no disk space.

    Raises:
        WeightsError: a matrix has a number that is not finite, or the file cannot be written, for
            want of disk space for instance.
    """
    places = _places(matrices)
    size = places[-1].end if places else 0
    header = _header(places)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if values:
            make_room(path.parent, size)
        with new_file(path, header, size) as file:
            if values:
                _write_values(file.fileno(), len(header), places, progress)
                os.fsync(file.fileno())
    except OSError as error:
        raise WeightsError(
            f"{path}: {size} bytes of quantized weights cannot be made ({error.strerror}):"
            " if it is for want of disk space, choose another folder with --cache-dir"
        ) from error


def _places(matrices: Sequence[tuple[RowWriter, RowSource]]) -> list[_Place]:
    parts = [(by, m, part) for by, m in matrices for part in by.parts(m.shape[1])]
    places: list[_Place] = []
    begin = 0
    for by, matrix, part in sorted(parts, key=lambda entry: -_ELEMENT_BYTES[entry[2].dtype]):
        places.append(_Place(by, matrix, part, -(-matrix.shape[0] // part.row_step), begin))
        begin = places[-1].end
    return places


def _header(places: Sequence[_Place]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for place in places:
        entries[place.name] = {
            "dtype": place.part.dtype,
            "shape": [place.rows, place.part.columns],
            "data_offsets": [place.begin, place.end],
        }
    return safetensors_header(entries)


def _write_values(file: int, start: int, places: Sequence[_Place], progress: TextIO) -> None:
    of_module: dict[str, list[_Place]] = {}
    for place in places:
        of_module.setdefault(place.matrix.module, []).append(place)

    def round_rows(rounding: RowWriter, matrix: RowSource, begin: int, count: int) -> int:
        parts = [part.suffix for part in rounding.parts(matrix.shape[1])]
        rounded = dict(zip(parts, rounding.round(_finite(matrix, begin, count)), strict=True))
        for place in of_module[matrix.module]:
            _check(matrix.tensor, rounded[place.part.suffix])
            at = start + place.begin + begin // place.part.row_step * place.row_bytes
            _write_at(file, rounded[place.part.suffix], at)
        return matrix.stored_bytes * count // matrix.shape[0]

    matrices = [(found[0].rounding, found[0].matrix) for found in of_module.values()]
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    bar = tqdm(
        total=sum(matrix.stored_bytes for _, matrix in matrices),
        desc="quantizing",
        file=progress,
        unit="B",
        unit_scale=True,
        disable=None,
    )
    try:
        for rounding, matrix in matrices:  # a few thousand chunks at a time
            begins, counts = zip(*_chunks(matrix, rounding.row_step), strict=True)
            for done in pool.map(round_rows, repeat(rounding), repeat(matrix), begins, counts):
                bar.update(done)
    finally:
        bar.close()
        pool.shutdown(cancel_futures=True)


def _chunks(matrix: RowSource, step: int) -> Iterator[tuple[int, int]]:
    """The first rows of parts of the matrix, multiples of `step`, and their numbers of rows."""
    rows, columns = matrix.shape
    size = max(1, _CHUNK // columns // step) * step
    for begin in range(0, rows, size):
        yield begin, min(size, rows - begin)


def _check(tensor: TensorLocation, rounded: npt.NDArray[Any]) -> None:
    """Rejects scales that their type does not hold."""
    if rounded.dtype.kind == "f" and not np.isfinite(rounded).all():
        raise WeightsError(f"{tensor.file}: {tensor.name} has numbers that are too large")


def _finite(matrix: RowSource, begin: int, count: int) -> npt.NDArray[np.float32]:
    values = matrix.rows(begin, count)
    if not math.isfinite(values.max(initial=0) - values.min(initial=0)):
        tensor = matrix.tensor
        raise WeightsError(f"{tensor.file}: {tensor.name} has numbers that are not finite")
    return values


def _write_at(file: int, values: npt.NDArray[Any], at: int) -> None:
    little_endian = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    rest = little_endian.reshape(-1).view(np.uint8).data
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
