"""Reader of GGUF files (versions 2 and 3): metadata and tensor infos, not the tensors themselves.

    gguf = GgufFile.open("model.gguf")
    gguf.metadata["general.architecture"]  # "llama"
    gguf.tensors["token_embd.weight"].offset

No count in the file is trusted: each is checked against the bytes that are left before anything is
read or allocated. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill.tensor.dtypes import DTYPES, tensor_bytes
from pagemill.weights.errors import WeightsError, lfs_hint
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation

_MAGIC = b"GGUF"
_MAX_DIMENSIONS = 4
_MAX_ARRAY_DEPTH = 2
# Bounds on the memory of a parsed header; the largest known have 16 MB, 2,000 tensors, 100 entries,
# and arrays of 500,000 items.
_MAX_HEADER_BYTES = 2**26
_MAX_TENSORS = 2**17
_MAX_ENTRIES = 2**16
_MAX_ARRAY_ITEMS = 2**22

# GGML's numbers of the supported tensor types, and names of some others.
_TENSOR_TYPES = {
    0: "f32",
    1: "f16",
    2: "q4_0",
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    8: "q8_0",
    10: "q2_k",
    11: "q3_k",
    12: "q4_k",
    13: "q5_k",
    14: "q6_k",
    16: "iq2_xxs",
    17: "iq2_xs",
    18: "iq3_xxs",
    19: "iq1_s",
    20: "iq4_nl",
    21: "iq3_s",
    22: "iq2_s",
    23: "iq4_xs",
    24: "i8",
    26: "i32",
    29: "iq1_m",
    30: "bf16",
    34: "tq1_0",
    35: "tq2_0",
    39: "mxfp4",
}
_OTHER_TYPES = {
    9: "q8_1",
    15: "q8_k",
    25: "i16",
    27: "i64",
    28: "f64",
}

# GGUF's metadata types, and the struct codes of those of fixed size.
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}

Metadata = dict[str, Any]  # str, int, float, bool, or a list of one of them


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An opened file; a value without a descriptor."""

    path: str
    metadata: Metadata
    tensors: dict[str, TensorLocation]

    @classmethod
    def open(cls, path: str | Path) -> GgufFile:
        """Read the header of `path`.

        Raises:
            WeightsError: the file is not a GGUF file, is cut short or inconsistent, or stores
            tensors
                in a type that is not supported.
            OSError: the file cannot be read.
        """
        path = str(path)
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise WeightsError(f"{path}: {size} bytes are not a GGUF file")
            header_end = min(size, _MAX_HEADER_BYTES)
            with mmap.mmap(file.fileno(), header_end, access=mmap.ACCESS_READ) as data:
                try:
                    return _Parser(path, data, size).parse()
                except (struct.error, UnicodeDecodeError) as error:
                    raise WeightsError(f"{path}: corrupt GGUF header: {error}") from error


class _Parser:
    """`data` is the part of a file of `size` bytes that may be header."""

    def __init__(self, path: str, data: mmap.mmap, size: int) -> None:
        self._path = path
        self._data = data
        self._size = size
        self._end = len(data)
        self._at = 0

    def parse(self) -> GgufFile:
        if self._data[:4] != _MAGIC:
            raise self._error(f"it does not start with 'GGUF'{lfs_hint(self._data[:32])}")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            kind = "big-endian GGUF" if swapped in (2, 3) else f"GGUF version {version}"
            raise self._error(f"{kind} is not supported; versions 2 and 3, little endian, are")
        tensor_count, entry_count = self._scalar("Q"), self._scalar("Q")
        # A tensor info takes at least 24 bytes, a metadata entry 13.
        self._require(tensor_count, 24, "tensors", _MAX_TENSORS)
        self._require(entry_count, 13, "metadata entries", _MAX_ENTRIES)
        metadata: Metadata = {}
        for _ in range(entry_count):
            key = self._string()
            if key in metadata:
                raise self._error(f"the metadata key {shown(key)} occurs twice")
            metadata[key] = self._value(self._scalar("I"), 0)
        infos = [self._tensor_info() for _ in range(tensor_count)]
        return GgufFile(self._path, metadata, self._locate(metadata, infos))

    def _error(self, what: str) -> WeightsError:
        return WeightsError(f"{self._path}: {what}")

    def _require(self, count: int, item_bytes: int, what: str, most: int | None = None) -> None:
        if count * item_bytes > self._end - self._at:
            raise self._error(
                f"cut short or corrupt: {count} {what} announced, "
                f"{self._end - self._at} bytes left at offset {self._at}"
            )
        if most is not None and count > most:
            raise self._error(f"{count} {what} announced; at most {most} are supported")

    def _scalar(self, code: str) -> Any:
        width = struct.calcsize("<" + code)
        self._require(1, width, "numbers")
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += width
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        self._require(length, 1, "characters")
        start, self._at = self._at, self._at + length
        return self._data[start : self._at].decode("utf-8")

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(depth + 1)
        if kind not in _SCALARS:
            raise self._error(f"unknown metadata type {kind} before offset {self._at}")
        value = self._scalar(_SCALARS[kind])
        return bool(value) if kind == _BOOL else value

    def _array(self, depth: int) -> list[Any]:
        if depth > _MAX_ARRAY_DEPTH:
            raise self._error("metadata arrays are nested too deep")
        kind, count = self._scalar("I"), self._scalar("Q")
        if kind == _STRING:
            self._require(count, 8, "strings", _MAX_ARRAY_ITEMS)
            return self._strings(count)
        if kind == _ARRAY:
            self._require(count, 12, "arrays", _MAX_ARRAY_ITEMS)
            return [self._array(depth + 1) for _ in range(count)]
        if kind not in _SCALARS:
            raise self._error(f"unknown metadata type {kind} before offset {self._at}")
        code = _SCALARS[kind]
        width = struct.calcsize("<" + code)
        self._require(count, width, "numbers", _MAX_ARRAY_ITEMS)
        numbers = struct.unpack_from(f"<{count}{code}", self._data, self._at)
        self._at += count * width
        return [bool(number) for number in numbers] if kind == _BOOL else list(numbers)

    def _strings(self, count: int) -> list[str]:
        # The only hot loop of the parser (vocabularies have 10^5 entries): uses local names, no
        # method calls, and one slice per string.
        data, at, limit = self._data, self._at, self._end
        from_bytes = int.from_bytes
        strings: list[str] = []
        append = strings.append
        for _ in range(count):
            begin = at + 8
            at = begin + from_bytes(data[at:begin], "little")
            if at > limit:
                break
            append(data[begin:at].decode())
        if at > limit or len(strings) != count:
            raise self._error(f"cut short or corrupt: a string ends beyond byte {limit}")
        self._at = at
        return strings

    def _tensor_info(self) -> tuple[str, str, tuple[int, ...], int]:
        name = self._string()
        rank = self._scalar("I")
        if not 1 <= rank <= _MAX_DIMENSIONS:
            raise self._error(f"tensor {shown(name)} has {rank} dimensions")
        # GGML lists the fastest dimension first.
        shape = tuple(self._scalar("Q") for _ in range(rank))[::-1]
        kind, offset = self._scalar("I"), self._scalar("Q")
        if kind not in _TENSOR_TYPES:
            type_name = _OTHER_TYPES.get(kind, f"number {kind}")
            supported = ", ".join(sorted(_TENSOR_TYPES.values()))
            raise self._error(
                f"tensor {shown(name)} is stored as GGML type {type_name}; supported:"
                f" {supported}: quantize the model to one of these, such as Q8_0 or Q4_K_M"
            )
        return name, _TENSOR_TYPES[kind], shape, offset

    def _locate(
        self, metadata: Metadata, infos: list[tuple[str, str, tuple[int, ...], int]]
    ) -> dict[str, TensorLocation]:
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._error(f"the alignment {shown(alignment)} is not a power of two")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorLocation] = {}
        for name, dtype, shape, offset in infos:
            if name in tensors:
                raise self._error(f"the tensor {shown(name)} occurs twice")
            if shape[-1] % DTYPES[dtype].block_elements or offset % alignment:
                raise self._error(
                    f"tensor {shown(name)}: shape {shape} or offset {offset} is not whole"
                )
            end = start + offset + tensor_bytes(dtype, shape)
            if end > self._size:
                raise self._error(
                    f"cut short: tensor {shown(name)} ends at byte {end}, the file at {self._size}"
                )
            tensors[name] = TensorLocation(name, dtype, shape, self._path, start + offset)
        self._check_overlaps(tensors)
        return tensors

    def _check_overlaps(self, tensors: dict[str, TensorLocation]) -> None:
        end, before = 0, ""
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
            if tensor.offset < end:
                raise self._error(f"tensors {shown(before)} and {shown(tensor.name)} overlap")
            end = tensor.offset + tensor_bytes(tensor.dtype, tensor.shape)
            before = tensor.name
