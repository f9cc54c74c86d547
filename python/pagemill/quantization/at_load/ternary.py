"""BitNet's matrices: each element is one of -1, 0 and 1, times a number of the matrix.

    matrices = ternary_matrices(source)
    matrices[0].rows(0, 64)   # f32 [64, 2560]

`<module>.weight` has four rows in the bits of one, two bits for each element, those of the first
quarter of the rows in the lowest bits; `<module>.weight_scale` the number. Of checkpoints that are
to be rounded when they are used ("online"), it has real numbers, which become such elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, read_bytes, read_f32
from pagemill.weights.source import QUANTIZATION, ModelSource
from pagemill.weights.stored_matrix import StoredMatrix, module_of

_ROWS = 4  # of the matrix, in a stored one
_LEAST = np.float32(1e-5)  # mean magnitude, of all models
_SCALE = "weight_scale"
# Whether what is multiplied is divided by the number, in which case it is the inverse.
_DIVIDES = {"bitlinear": True, "autobitlinear": False}

Floats = npt.NDArray[np.float32]


def ternary_matrices(source: ModelSource) -> Sequence[PackedTernary | RoundedTernary]:
    """All of `source`.

    Raises:
        WeightsError: a tensor does not fit, or a setting is not supported.
        OSError: a file cannot be read.
    """
    section = cast("dict[str, Any]", source.config[QUANTIZATION])
    mode = section.get("quantization_mode", "offline")
    linear = section.get("linear_class", "bitlinear")
    known = mode in ("offline", "online") and isinstance(linear, str) and linear in _DIVIDES
    if not known or section.get("use_rms_norm"):
        raise WeightsError(
            f"{source.path}: BitNet's quantization_mode {shown(mode)}, linear_class"
            f" {shown(linear)} or use_rms_norm is not supported; supported: offline and online,"
            " bitlinear and autobitlinear, no norms"
        )
    if mode == "online":
        return [RoundedTernary(matrix, cache(_magnitude)) for matrix in _real_matrices(source)]
    names = {tensor.name for tensor in source.tensors}
    packed = [t for t in source.tensors if f"{module_of(t)}.{_SCALE}" in names and _is_weight(t)]
    return [_open(source, tensor, divides=_DIVIDES[linear]) for tensor in packed]


@dataclass(frozen=True, slots=True)
class PackedTernary:
    """`tensor` has the elements, and `parts` are the names of all tensors of the matrix."""

    tensor: TensorLocation
    shape: tuple[int, int]
    parts: Sequence[str]
    _factor: np.float32

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
        stored = read_bytes(self.tensor).reshape(self.tensor.shape)
        quarters, places = np.divmod(np.arange(begin, begin + count), len(stored))
        codes = stored[places] >> (2 * quarters).astype(np.uint8)[:, None] & 3
        return (codes.astype(np.float32) - 1) * self._factor


@dataclass(frozen=True, slots=True)
class RoundedTernary:
    """The real numbers of `matrix`, rounded by their mean `magnitude`."""

    matrix: StoredMatrix
    magnitude: Callable[[TensorLocation], np.float32]

    @property
    def tensor(self) -> TensorLocation:
        return self.matrix.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.matrix.shape

    @property
    def parts(self) -> Sequence[str]:
        return [self.tensor.name]

    @property
    def module(self) -> str:
        return self.matrix.module

    @property
    def stored_bytes(self) -> int:
        return self.matrix.stored_bytes

    def rows(self, begin: int, count: int) -> Floats:
        """Rows of the matrix, f32 [count, in].

        Raises:
            OSError: the file cannot be read.
        """
        magnitude = self.magnitude(self.tensor)
        return np.clip(np.rint(self.matrix.rows(begin, count) / magnitude), -1, 1) * magnitude


def _magnitude(tensor: TensorLocation) -> np.float32:
    """The mean magnitude of the numbers of a matrix."""
    return np.maximum(np.abs(read_f32(tensor)).mean(dtype=np.float32), _LEAST)


def _is_weight(tensor: TensorLocation) -> bool:
    return tensor.name.endswith(".weight") and len(tensor.shape) == 2


def _real_matrices(source: ModelSource) -> Sequence[StoredMatrix]:
    """Those of linear layers, without the head."""
    return [
        StoredMatrix(tensor)
        for tensor in source.tensors
        if _is_weight(tensor) and ".layers." in tensor.name and tensor.dtype in REAL_DTYPES
    ]


def _open(source: ModelSource, tensor: TensorLocation, *, divides: bool) -> PackedTernary:
    scale = source.tensor(f"{module_of(tensor)}.{_SCALE}")
    if tensor.dtype != "u8" or scale.dtype not in REAL_DTYPES or math.prod(scale.shape) != 1:
        raise WeightsError(
            f"{source.path}: {tensor.name} is {tensor.dtype} and {scale.name} {scale.dtype}"
            f" {list(scale.shape)}; they must be u8, and one number in f32, bf16 or f16"
        )
    factor = read_f32(scale).reshape(())
    with np.errstate(divide="ignore", over="ignore"):
        value = np.float32(1 / factor if divides else factor)
    if not np.isfinite([factor, value]).all():
        raise WeightsError(f"{source.path}: {scale.name} is {factor}, no scale")
    rows, columns = tensor.shape
    return PackedTernary(tensor, (_ROWS * rows, columns), [tensor.name, scale.name], value)
