"""Reads tensors into memory as f32; the native executor maps them instead."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import BLOCK_DTYPES, DTYPES, tensor_bytes
from pagemill.weights.dequantize import dequantize
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation

_INTEGERS = {"i32": "<i4", "i64": "<i8"}
_MAX_EXACT = 1 << 24  # in f32
REAL_DTYPES = ("f32", "bf16", "f16")  # one number per element, without a scale


def e4m3_values() -> npt.NDArray[np.float32]:
    """The value of each of the 256 codes of f8_e4m3 (`cc/tensor/float8.h`)."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    subnormal = exponents == 0
    magnitudes = np.ldexp(
        np.where(subnormal, 0, 8) + mantissas, np.where(subnormal, 1, exponents) - 10
    )
    magnitudes[codes & 127 == 127] = np.nan
    return np.where(codes >= 128, -magnitudes, magnitudes).astype(np.float32)


def e8m0_values(codes: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Codes s of e8m0 as 2^(s - 127), 255 as NaN."""
    powers = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
    return np.where(codes == 255, np.float32(np.nan), powers)


def read_bytes(location: TensorLocation) -> npt.NDArray[np.uint8]:
    """The tensor's bytes as they are stored, a read-only map of the file.

    Raises:
        WeightsError: the dtype is not supported. OSError: the file cannot be read.
    """
    if location.dtype not in DTYPES:
        raise WeightsError(f"a tensor of {location.dtype} is not a weight")
    size = tensor_bytes(location.dtype, location.shape)
    if size == 0:
        return np.empty(0, np.uint8)
    return np.memmap(location.file, np.uint8, "r", location.offset, (size,))


def as_f32(
    dtype: str, shape: tuple[int, ...], data: npt.NDArray[np.uint8]
) -> npt.NDArray[np.float32]:
    """The values of a tensor stored as `dtype` in the bytes `data`.

    Raises:
        WeightsError: `dtype` holds no real numbers.
    """
    if dtype == "f32":
        return data.view("<f4").reshape(shape)
    if dtype == "f16":
        return data.view("<f2").astype(np.float32).reshape(shape)
    if dtype == "bf16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if dtype == "i8":
        return data.view(np.int8).astype(np.float32).reshape(shape)
    if dtype == "f8_e4m3":
        return e4m3_values()[data].reshape(shape)
    if dtype in BLOCK_DTYPES:
        return dequantize(dtype, data).reshape(shape)
    raise WeightsError(f"a tensor of {dtype} is not a weight")


def read_f32(location: TensorLocation) -> npt.NDArray[np.float32]:
    """The tensor's values.

    Raises:
        WeightsError: the dtype holds no real numbers.
        OSError: the file cannot be read.
    """
    values = as_f32(location.dtype, location.shape, read_bytes(location))
    return np.log(-values) if location.negated_exp else values


def read_some(location: TensorLocation, index: Any) -> npt.NDArray[np.float32]:
    """The values of some elements, of numbers without blocks, as numpy's `index` chooses them.

    Raises:
        WeightsError: the dtype holds no real numbers.
        OSError: the file cannot be read.
    """
    element = DTYPES[location.dtype].block_bytes
    stored = read_bytes(location).view(f"<u{element}").reshape(location.shape)
    chosen = np.ascontiguousarray(stored[index])
    return as_f32(location.dtype, chosen.shape, chosen.reshape(-1).view(np.uint8))


def read_integers(location: TensorLocation) -> npt.NDArray[np.float32]:
    """Whole numbers, stored as integers of 32 or 64 bits or as real numbers.

    Raises:
        WeightsError: the dtype is another, or f32 does not hold a number exactly.
        OSError: the file cannot be read.
    """
    if location.dtype not in _INTEGERS:
        return read_f32(location)
    kind = np.dtype(_INTEGERS[location.dtype])
    count = math.prod(location.shape)
    stored = np.memmap(location.file, np.uint8, "r", location.offset, (count * kind.itemsize,))
    values = stored.view(kind).reshape(location.shape)
    if np.abs(values).max(initial=0) > _MAX_EXACT:
        raise WeightsError(f"{location.name} has whole numbers above {_MAX_EXACT}")
    return values.astype(np.float32)


def is_zero(location: TensorLocation) -> bool:
    """True if the tensor contains only zeros.

    Raises:
        OSError: the file cannot be read.
    """
    return location.dtype in DTYPES and not read_bytes(location).any()
