"""The values of matrices that were rounded at load, read without the code that loads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pagemill.weights.read import e4m3_values, read_bytes
from pagemill.weights.source import ModelSource

Floats = npt.NDArray[np.float32]
Parts = Mapping[str, npt.NDArray[Any]]
"""By suffix; e4m3 as u8, and packed integers as bytes."""

_TYPES = {"i8": "<i1", "f8_e4m3": "<u1", "f16": "<f2", "f32": "<f4", "i32": "<u4"}
_PARTS = ("weight", "weight_packed", "weight_scale", "weight_zero_point")
_GROUP, _BLOCK = 32, 128


def decoded(parts: Parts, shape: tuple[int, ...]) -> Floats:
    """The matrix of `shape` that `parts` stand for."""
    scales = parts["weight_scale"].astype(np.float32)
    if "weight" in parts:
        stored = parts["weight"]
        values = e4m3_values()[stored] if stored.dtype == np.uint8 else stored.astype(np.float32)
        by_row = scales.shape == (shape[0], 1)
        return values * _spread(scales, shape, *((1, shape[1]) if by_row else (_BLOCK, _BLOCK)))
    packed = parts["weight_packed"]
    if "weight_zero_point" not in parts:
        return (packed.astype(np.float32) - 128) * _spread(scales, shape, 1, _GROUP)
    values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(shape).astype(np.float32)
    shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
    words = parts["weight_zero_point"]
    zeros = (words[:, None] >> shifts & 15).reshape(-1, words.shape[1]).astype(np.float32)
    return (values - _spread(zeros, shape, 1, _GROUP)) * _spread(scales, shape, 1, _GROUP)


def read_matrix(source: ModelSource, module: str, shape: tuple[int, ...]) -> Floats:
    """That of `module` in a source whose matrices were rounded."""
    parts: dict[str, npt.NDArray[Any]] = {}
    for suffix in _PARTS:
        if source.has(f"{module}.{suffix}"):
            location = source.tensor(f"{module}.{suffix}")
            stored = read_bytes(location)
            if suffix == "weight_packed":
                parts[suffix] = stored.reshape(location.shape[0], -1)
            else:
                parts[suffix] = stored.view(_TYPES[location.dtype]).reshape(location.shape)
    return decoded(parts, shape)


def _spread(numbers: Floats, shape: tuple[int, ...], rows: int, columns: int) -> Floats:
    """Each number for so many rows and columns."""
    return np.repeat(np.repeat(numbers, rows, 0)[: shape[0]], columns, 1)[:, : shape[1]]
