"""Writes GGUF files with arbitrary headers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALIGNMENT = 32
_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}


@dataclass(slots=True)
class TensorInfo:
    """One tensor as its header names it; `shape` has the slowest dimension first."""

    name: str
    shape: Sequence[int]
    kind: int
    offset: int


def kind_of(dtype: str) -> int:
    """GGML's number of `dtype`."""
    return _TYPES[dtype]


def header(metadata: Mapping[str, Any], tensors: Sequence[TensorInfo]) -> bytes:
    """A header of version 3, padded; numbers that a field cannot hold wrap around."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), _value(value)]
    for tensor in tensors:
        dims = b"".join(_u64(dim) for dim in reversed(tensor.shape))
        count = struct.pack("<I", len(tensor.shape))
        kind = struct.pack("<I", tensor.kind)
        parts += [_string(tensor.name), count, dims, kind, _u64(tensor.offset)]
    made = b"".join(parts)
    return made + bytes(-len(made) % ALIGNMENT)


def _u64(number: int) -> bytes:
    return struct.pack("<Q", number % 2**64)


def _string(text: str) -> bytes:
    data = text.encode()
    return _u64(len(data)) + data


def _value(value: Any) -> bytes:
    """The type's number and the value."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<I", 11 if value < 0 else 10) + _u64(value)
    if isinstance(value, float):
        return struct.pack("<Id", 12, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    items = [_value(item) for item in value] or [struct.pack("<I", 4)]
    count = len(value)
    return struct.pack("<I", 9) + items[0][:4] + _u64(count) + b"".join(i[4:] for i in items)
