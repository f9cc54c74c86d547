"""Integers packed in words of 32 bits, with an f16 scale for 32 columns of a row: 8 bits, or 4 bits
with zero points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagemill.quantization.at_load.rounding import Floats, RoundedPart

GROUP = 32  # that of the block formats that CPUs pack such matrices as
_ZEROS_OF_WORD = 8  # zero points of 4 bits of so many rows
# What a group's scale of 4 bits is tried for, of the one that its range needs: a smaller one cuts
# the largest numbers off and rounds all others less.
_SHARES = (1.0, 0.95, 0.9, 0.85)


class Int8Rounding:
    """q times a scale, -128 <= q < 128: the largest magnitude of a group becomes -128, by a scale
    of the opposite sign. 8.5 bits a weight."""

    row_step = 1

    @property
    def section(self) -> Mapping[str, Any]:
        return _section(8, symmetric=True)

    def refusal(self, shape: Sequence[int]) -> str:
        return _refusal(shape)

    def parts(self, columns: int) -> Sequence[RoundedPart]:
        return (
            RoundedPart("weight_packed", "I32", 1, columns // 4),
            RoundedPart("weight_scale", "F16", 1, columns // GROUP),
        )

    def round(self, values: Floats) -> Sequence[npt.NDArray[Any]]:
        groups = values.reshape(-1, GROUP)
        low, high = _ends(groups)
        largest = np.where(high > -low, high, low).astype(np.float32)
        scales = _f16(largest / np.float32(-128))
        q = np.rint(groups * _inverse(scales))
        q = np.clip(q, -128, 127) + np.float32(128)
        return q.astype(np.uint8).reshape(values.shape), scales.reshape(len(values), -1)


class Int4Rounding:
    """q - z times a scale, 0 <= q, z < 16: the scale is the one of a few with the least squared
    error. 4.6 bits a weight."""

    row_step = _ZEROS_OF_WORD

    @property
    def section(self) -> Mapping[str, Any]:
        return _section(4, symmetric=False)

    def refusal(self, shape: Sequence[int]) -> str:
        return _refusal(shape)

    def parts(self, columns: int) -> Sequence[RoundedPart]:
        groups = columns // GROUP
        return (
            RoundedPart("weight_packed", "I32", 1, columns // 8),
            RoundedPart("weight_scale", "F16", 1, groups),
            RoundedPart("weight_zero_point", "I32", _ZEROS_OF_WORD, groups),
        )

    def round(self, values: Floats) -> Sequence[npt.NDArray[Any]]:
        groups = values.reshape(-1, GROUP)
        low, high = _ends(groups)
        # 0 is among the numbers that stay exact: a zero point has 4 bits.
        low = np.minimum(low, 0)
        span = np.maximum(high, 0) - low
        best = least = None
        for share in _SHARES:
            tried = _with_zero_points(groups, low * np.float32(share), span * np.float32(share))
            errors = _errors(groups, *tried)
            if best is None or least is None:
                best, least = tried, errors
                continue
            better = errors < least
            least = np.where(better, errors, least)
            for kept, other in zip(best, tried, strict=True):
                kept[better] = other[better]
        assert best is not None
        q, zeros, scales = (part.reshape(len(values), -1) for part in best)
        return _nibbles(q.astype(np.uint8)), scales, _words_of_rows(zeros.astype(np.uint8))


def _section(bits: int, *, symmetric: bool) -> Mapping[str, Any]:
    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": symmetric,
        "strategy": "group",
        "group_size": GROUP,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


def _refusal(shape: Sequence[int]) -> str:
    columns = shape[-1]
    return f"{columns} columns are not a multiple of {GROUP}" if columns % GROUP else ""


def _ends(groups: Floats) -> tuple[Floats, Floats]:
    """The smallest and the largest number of each group, [groups, 1]."""
    low = high = groups
    while low.shape[1] > 1:  # halves are compared faster than the numbers of a short row
        half = low.shape[1] // 2
        low = np.minimum(low[:, :half], low[:, half:])
        high = np.maximum(high[:, :half], high[:, half:])
    return low, high


def _f16(scales: Floats) -> npt.NDArray[np.float16]:
    """Infinite where f16 does not hold them, which the writer refuses."""
    with np.errstate(over="ignore"):
        return scales.astype(np.float16)


def _inverse(scales: npt.NDArray[np.float16]) -> Floats:
    """1 over each scale; 0 of 0."""
    wide = scales.astype(np.float32)
    return np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide != 0)


def _with_zero_points(
    groups: Floats, low: Floats, span: Floats
) -> tuple[Floats, Floats, npt.NDArray[np.float16]]:
    """Integers [groups, 32] and zero points [groups, 1], as floats, and scales [groups, 1], for
    numbers from `low` on."""
    scales = _f16(span / np.float32(15))
    inverse = _inverse(scales)
    zeros = np.clip(np.rint(-low * inverse), 0, 15)
    return np.clip(np.rint(groups * inverse) + zeros, 0, 15), zeros, scales


def _errors(groups: Floats, q: Floats, zeros: Floats, scales: npt.NDArray[np.float16]) -> Floats:
    """The sum of squared differences of each group, [groups]."""
    rest = groups - (q - zeros) * scales.astype(np.float32)
    return np.einsum("gc,gc->g", rest, rest)


def _nibbles(q: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes of little-endian words, the first integer of 4 bits in the lowest."""
    return q[:, 0::2] | q[:, 1::2] * np.uint8(16)


def _words_of_rows(zeros: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Words [ceil(rows / 8), groups] of the zero points of eight rows each."""
    rows = -(-len(zeros) // _ZEROS_OF_WORD) * _ZEROS_OF_WORD
    padded = np.zeros((rows, zeros.shape[1]), np.uint32)
    padded[: len(zeros)] = zeros
    shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
    return np.bitwise_or.reduce(
        padded.reshape(-1, _ZEROS_OF_WORD, zeros.shape[1]) << shifts, axis=1
    )
