"""Reader of safetensors files: the header, checked against the file's size.

Format: 8 bytes of header length (little endian), a JSON object name -> {dtype, shape,
data_offsets}, then the data. Several files form one model through `model.safetensors.index.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pagemill.ops.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation

_MAX_HEADER_BYTES = 100_000_000  # the limit of the format's own library
_DTYPES = {
    "BF16": "bf16",
    "F16": "f16",
    "F32": "f32",
    "F8_E4M3": "f8_e4m3",
    "I32": "i32",
    "I8": "i8",
    "U8": "u8",
}
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def read_directory(directory: Path) -> dict[str, TensorLocation]:
    """The tensors of `model.safetensors`, or of the shards that the index file names.

    Raises:
        WeightsError: there is neither, or a file is corrupt.
    """
    index = directory / INDEX_FILE
    if not index.exists():
        single = directory / SINGLE_FILE
        if not single.exists():
            raise WeightsError(f"{directory} has neither {SINGLE_FILE} nor {INDEX_FILE}")
        return read_file(single)
    weight_map = _read_index(index)
    tensors: dict[str, TensorLocation] = {}
    for shard in sorted(set(weight_map.values())):
        # Without this check an index file could name any file of the machine.
        if Path(shard).name != shard:
            raise WeightsError(f"{index}: the shard {shard!r} is no plain file name")
        found = read_file(directory / shard)
        tensors |= {name: at for name, at in found.items() if weight_map.get(name) == shard}
    missing = sorted(weight_map.keys() - tensors.keys())
    if missing:
        raise WeightsError(f"{index}: {len(missing)} tensors are in no shard, first {missing[0]!r}")
    return tensors


def read_file(path: Path) -> dict[str, TensorLocation]:
    """The tensors of one file; those of a type that Pagemill has no name for are left out.

    Raises:
        WeightsError: the header is corrupt or a tensor ends beyond the file.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        header_bytes = int.from_bytes(file.read(8), "little")
        if size < 8 or header_bytes > min(size - 8, _MAX_HEADER_BYTES):
            raise WeightsError(f"{path}: cut short or no safetensors file ({size} bytes)")
        header = file.read(header_bytes)
    try:
        entries: Any = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: the header is no JSON: {error}") from error
    if not isinstance(entries, dict):
        raise WeightsError(f"{path}: the header is no JSON object")
    start = 8 + header_bytes
    tensors: dict[str, TensorLocation] = {}
    for name, entry in cast("dict[str, Any]", entries).items():
        if name == "__metadata__":
            continue
        location = _locate(path, name, entry, start, size)
        if location is not None:
            tensors[name] = location
    return tensors


def _locate(path: Path, name: str, entry: Any, start: int, size: int) -> TensorLocation | None:
    try:
        dtype, shape = entry["dtype"], entry["shape"]
        begin, end = entry["data_offsets"]
        sound = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError) as error:
        raise WeightsError(f"{path}: tensor {name!r} has a malformed entry") from error
    if not sound or begin > end or start + end > size:
        raise WeightsError(f"{path}: tensor {name!r} lies outside the file (cut short?)")
    if dtype not in _DTYPES:
        return None
    if end - begin != tensor_bytes(_DTYPES[dtype], shape):
        raise WeightsError(f"{path}: tensor {name!r} has {end - begin} bytes for {dtype} {shape}")
    return TensorLocation(name, _DTYPES[dtype], tuple(shape), str(path), start + begin)


def _read_index(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        if all(isinstance(k, str) and isinstance(v, str) for k, v in weight_map.items()):
            return weight_map
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(f"{index}: no readable weight_map: {error}") from error
    raise WeightsError(f"{index}: weight_map must map names to file names")
