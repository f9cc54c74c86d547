"""Tensors as safetensors files of bounded size, for weights of another program's memory.

    for bucket in buckets(model.state_dict().items(), default_bucket_bytes(stored_bytes)):
        with open(path, "wb") as file:
            bucket.write(file)

Takes tensors of torch, on any device, and arrays of numpy; imports torch only for the former.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np

from pagemill.weights.errors import WeightsError
from pagemill.weights.new_file import safetensors_header

NamedTensors = Iterable[tuple[str, Any]]
"""Names and tensors of torch, or arrays of numpy, in C or any other order."""

_LEAST_DEFAULT_BYTES = 1 << 30
_BUCKETS_OF_A_MODEL = 64  # the receiver has a file open for each, or two
_TORCH = "torch."
_DTYPES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
}
"""Types of torch and numpy, and what files call them."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One file: `header`, then `parts` one after the other."""

    header: bytes
    parts: tuple[memoryview, ...]

    def write(self, file: IO[bytes]) -> None:
        """Writes it to an empty file.

        Raises:
            OSError: there is no room, for instance.
        """
        file.write(self.header)
        for part in self.parts:
            file.write(part)
        file.flush()


def default_bucket_bytes(model_bytes: int) -> int:
    """How many bytes of tensors to send in one file of a model of `model_bytes`: 1 GiB, or more if
    that would be too many files for `SentFiles`."""
    return max(_LEAST_DEFAULT_BYTES, model_bytes // _BUCKETS_OF_A_MODEL)


def buckets(tensors: NamedTensors, bucket_bytes: int, dtype: Any = None) -> Iterator[Bucket]:
    """Files of at most `bucket_bytes` of tensors each, or of one larger tensor. Of tensors that
    read the same memory alike, such as tied weights, the first one counts.

    Args:
        tensors: read once; in memory at a time are those of one bucket.
        bucket_bytes: at least 1.
        dtype: tensors of torch that hold real numbers are converted to this type of torch.

    Raises:
        WeightsError: a tensor is of a type that checkpoints do not have.
        ValueError: `bucket_bytes` is below 1.
    """
    if bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes}, it must be at least 1")
    packed: list[_Packed] = []
    size = 0
    seen: dict[_Memory, weakref.ref[Any]] = {}
    for name, tensor in tensors:
        if _is_seen(tensor, seen):
            continue
        one = _pack(name, tensor, dtype)
        if packed and size + one.data.nbytes > bucket_bytes:
            yield _bucket(packed)
            packed, size = [], 0
        packed.append(one)
        size += one.data.nbytes
    if packed:
        yield _bucket(packed)


class _Memory(NamedTuple):
    """What a tensor of torch reads, and how."""

    address: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True, slots=True)
class _Packed:
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def _is_seen(tensor: Any, seen: dict[_Memory, weakref.ref[Any]]) -> bool:
    """True if one of `seen`, to which it is added, is the same. One that is gone is not:
    its memory may be another's by now."""
    if not str(tensor.dtype).startswith(_TORCH) or tensor.numel() == 0:
        return False
    key = _Memory(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
    before = seen.get(key)
    if before is not None and before() is not None:
        return True
    seen[key] = weakref.ref(tensor)
    return False


def _pack(name: str, tensor: Any, dtype: Any) -> _Packed:
    kind = str(tensor.dtype)
    if kind.startswith(_TORCH):
        import torch

        tensor = tensor.detach()
        if dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(dtype)
        kind = str(tensor.dtype).removeprefix(_TORCH)
        shape = tuple(tensor.shape)
        flat = tensor.to("cpu").contiguous().reshape(-1)
        array: np.ndarray = flat.view(torch.uint8).numpy()
    else:
        shape = tuple(tensor.shape)
        array = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    stored = _DTYPES.get(kind)
    if stored is None:
        known = ", ".join(sorted(_DTYPES))
        raise WeightsError(f"the tensor {name!r:.200} is of type {kind}; known types are {known}")
    return _Packed(name, stored, shape, array.data)


def _bucket(packed: list[_Packed]) -> Bucket:
    """Tensors of wide elements come first, so that each lies at a multiple of its element size."""
    ordered = sorted(packed, key=lambda one: _DTYPES_BY_WIDTH.index(one.dtype))
    entries: dict[str, object] = {}
    begin = 0
    for one in ordered:
        end = begin + one.data.nbytes
        entries[one.name] = {
            "dtype": one.dtype,
            "shape": list(one.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    return Bucket(safetensors_header(entries), tuple(one.data for one in ordered))


_DTYPES_BY_WIDTH = ("F32", "I32", "BF16", "F16", "F8_E4M3", "F8_E8M0", "I8", "U8")
