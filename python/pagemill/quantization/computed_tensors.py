"""What the binder computes of the tensors of a checkpoint, in f32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pagemill.weights.location import TensorLocation
from pagemill.weights.read import as_f32, read_bytes

_ROWS_AT_ONCE = 4096
_LEAST_NORM = 1e-12

Floats = npt.NDArray[np.float32]


def inverse_norms(location: TensorLocation, shape: tuple[int, int]) -> Floats:
    """1 over the Euclidean norm of each row of a matrix of `shape`: [rows]."""
    rows = read_bytes(location).reshape(shape[0], -1)
    norms = np.empty(shape[0], np.float32)
    for begin in range(0, shape[0], _ROWS_AT_ONCE):  # a head in f32 may have gigabytes
        part = rows[begin : begin + _ROWS_AT_ONCE]
        values = as_f32(location.dtype, (len(part), shape[1]), part.reshape(-1))
        norms[begin : begin + len(part)] = np.linalg.norm(values, axis=1)
    return np.reciprocal(np.maximum(norms, np.float32(_LEAST_NORM)))


def exponentials(values: Floats, factors: Sequence[float]) -> Floats:
    """Each factor times e to the power of its value; infinite if that is too large."""
    with np.errstate(over="ignore"):
        return np.asarray(factors, np.float32) * np.exp(values)


def batch_norm_line(
    weight: Floats, bias: Floats, mean: Floats, variance: Floats, *, eps: float
) -> tuple[Floats, Floats]:
    """A batch norm as what it multiplies by, and what it adds then."""
    factor = np.divide(weight, np.sqrt(variance + np.float32(eps)), dtype=np.float32)
    return factor, bias - mean * factor
