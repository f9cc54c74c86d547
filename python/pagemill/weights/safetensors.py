"""Reader of safetensors files: the header, checked against the file's size.

Format: 8 bytes of header length (little endian), a JSON object name -> {dtype, shape,
data_offsets}, then the data. Several files form one model through `model.safetensors.index.json`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError, lfs_hint
from pagemill.weights.json_file import MAX_JSON_BYTES, parse_json, read_object, shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.rank_files import read_rank_files

_MAX_DIMENSIONS = 8
_METADATA = "__metadata__"
_DTYPES = {
    "BF16": "bf16",
    "F16": "f16",
    "F32": "f32",
    "F8_E4M3": "f8_e4m3",
    "F8_E8M0": "u8",  # exponents of powers of two, which others store as U8
    "I32": "i32",
    "I8": "i8",
    "U8": "u8",
}
# Element sizes of types that are not supported. A file may contain them if no layer uses them, such
# as BERT's position_ids.
_OTHER_BYTES = {
    "BOOL": 1,
    "F64": 8,
    "F8_E5M2": 1,
    "I16": 2,
    "I64": 8,
    "U16": 2,
    "U32": 4,
    "U64": 8,
}
_STATES = "model-rank-*-part-*.safetensors"
_OF_STATES = (
    f"; {_STATES} are the sharded state of another server, with tensors as its kernels take them:"
    " use the checkpoint that it was made of, of which each rank reads its own part"
)
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def read_directory(directory: Path) -> dict[str, TensorLocation]:
    """The tensors of `model.safetensors`, of the shards that the index file names, or of the files
    of ranks (`rank_files`).

    Raises:
        WeightsError: none of these exist, or a file is corrupt.
    """
    if (ranks := read_rank_files(directory, read_file)) is not None:
        return ranks
    index = directory / INDEX_FILE
    if not index.exists():
        single = directory / SINGLE_FILE
        if not single.exists():
            instead = _OF_STATES if any(directory.glob(_STATES)) else ""
            raise WeightsError(f"{directory} has neither {SINGLE_FILE} nor {INDEX_FILE}{instead}")
        return read_file(single)
    weight_map = _read_index(index)
    tensors: dict[str, TensorLocation] = {}
    for shard in sorted(set(weight_map.values())):
        # Without this check an index file could name any file of the machine.
        if Path(shard).name != shard or "\n" in shard:
            raise WeightsError(f"{index}: the shard {shown(shard)} is not a plain file name")
        if not (directory / shard).exists():
            raise WeightsError(
                f"{directory} lacks {shown(shard)}, which {INDEX_FILE} names: finish the download"
            )
        found = read_file(directory / shard)
        tensors |= {name: at for name, at in found.items() if weight_map.get(name) == shard}
    missing = sorted(weight_map.keys() - tensors.keys())
    if missing:
        raise WeightsError(
            f"{index}: {len(missing)} tensors are in no shard, first {shown(missing[0])}"
        )
    return tensors


def read_file(path: Path) -> dict[str, TensorLocation]:
    """The tensors of one file. Types that `pagemill.tensor.dtypes` lacks keep the file's name, in
    lower case.

    Raises:
        WeightsError: the header is corrupt, a tensor ends beyond the file or is of an unknown type.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return read_tensors(file, str(path))


def read_tensors(
    file: BinaryIO, path: str, max_header_bytes: int = MAX_JSON_BYTES
) -> dict[str, TensorLocation]:
    """As `read_file`, of what is in `file`, which errors call `path`.

    Raises:
        WeightsError: as `read_file`, or the header is larger than `max_header_bytes`.
    """
    entries, start, size = _read_header(file, path, max_header_bytes)
    found = [_entry(path, name, entry) for name, entry in entries.items() if name != _METADATA]
    _check_layout(path, found, size - start)
    return {
        entry.name: TensorLocation(
            entry.name,
            _DTYPES.get(entry.dtype, entry.dtype.lower()),
            entry.shape,
            path,
            start + entry.begin,
        )
        for entry in found
    }


def read_metadata(path: Path) -> Mapping[str, str]:
    """The texts that the header of a file has beside its tensors, by their keys.

    Raises:
        WeightsError: the header is corrupt.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        entries, _, _ = _read_header(file, str(path))
    found = entries.get(_METADATA, {})
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, Any]", found).values()
    ):
        raise WeightsError(f"{path}: {_METADATA} must map names to texts")
    return cast("dict[str, str]", found)


def _read_header(
    file: BinaryIO, path: str, max_header_bytes: int = MAX_JSON_BYTES
) -> tuple[dict[str, Any], int, int]:
    """Its entries, the bytes before the data, and the bytes of the file."""
    size = file.seek(0, 2)
    file.seek(0)
    start = file.read(32)
    header_bytes = int.from_bytes(start[:8], "little")
    if size < 8 or header_bytes > min(size - 8, max_header_bytes):
        raise WeightsError(
            f"{path}: cut short or no safetensors file ({size} bytes){lfs_hint(start)}"
        )
    file.seek(8)
    header = file.read(header_bytes)
    entries = parse_json(header, f"the header of {path}")
    if not isinstance(entries, dict):
        raise WeightsError(f"{path}: the header is not a JSON object")
    return cast("dict[str, Any]", entries), 8 + header_bytes, size


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of a header; `begin` and `end` are bytes after it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _entry(path: str, name: str, entry: Any) -> _Entry:
    try:
        dtype, shape = entry["dtype"], entry["shape"]
        begin, end = entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise WeightsError(f"{path}: tensor {shown(name)} has a malformed entry") from error
    if (
        not isinstance(dtype, str)
        or not isinstance(shape, list)
        or len(cast("list[Any]", shape)) > _MAX_DIMENSIONS
    ):
        raise WeightsError(f"{path}: tensor {shown(name)} has a malformed entry")
    numbers = cast("list[Any]", [*shape, begin, end])
    if not all(type(n) is int and 0 <= n < 2**63 for n in numbers) or begin > end:
        raise WeightsError(f"{path}: tensor {shown(name)} has a malformed entry")
    dims = tuple(cast("list[int]", shape))
    if dtype in _DTYPES:
        expected = tensor_bytes(_DTYPES[dtype], dims)
    elif dtype in _OTHER_BYTES:
        expected = math.prod(dims) * _OTHER_BYTES[dtype]
    else:
        supported = ", ".join(sorted(_DTYPES))
        raise WeightsError(
            f"{path}: tensor {shown(name)} is stored as {shown(dtype)}; supported: {supported}"
        )
    if end - begin != expected:
        raise WeightsError(
            f"{path}: tensor {shown(name)} has {end - begin} bytes for {dtype} {list(dims)}"
        )
    return _Entry(name, dtype, dims, begin, end)


def _check_layout(path: str, entries: list[_Entry], data_bytes: int) -> None:
    """Checks that each byte after the header belongs to exactly one tensor."""
    at, before = 0, "the header"
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.end > data_bytes:
            raise WeightsError(
                f"{path}: tensor {shown(entry.name)} lies outside the file (cut short?)"
            )
        if entry.begin != at:
            what = "overlap" if entry.begin < at else "have unused bytes between them"
            raise WeightsError(f"{path}: {before} and tensor {shown(entry.name)} {what}")
        at, before = entry.end, f"tensor {shown(entry.name)}"
    if at != data_bytes:
        raise WeightsError(f"{path}: {data_bytes - at} bytes follow the last tensor")


def _read_index(index: Path) -> dict[str, str]:
    weight_map: Any = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(shard, str) for shard in cast("dict[str, Any]", weight_map).values()
    ):
        raise WeightsError(f"{index}: weight_map must map names to file names")
    return cast("dict[str, str]", weight_map)
