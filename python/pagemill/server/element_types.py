"""Types of the elements of embeddings in responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pagemill.server.protocol.pooling import ElementType

_NAN = 0x7F
_LARGEST_E4M3 = 0x7E
_INFINITE_E5M2 = 0x7C


@dataclass(frozen=True, slots=True)
class Elements:
    """A type. `stored` rounds float32 elements to it, in numpy's type `storage`, that of their
    bits if numpy lacks the type itself; `floats` is the reverse."""

    storage: str
    stored: Callable[[np.ndarray], np.ndarray]
    floats: Callable[[np.ndarray], np.ndarray]

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.storage).itemsize

    def values(self, vector: np.ndarray) -> list[float]:
        """The elements of a float32 `vector`, rounded to the type."""
        return self.floats(self.stored(vector)).tolist()

    def content(self, vector: np.ndarray, *, is_big: bool) -> bytes:
        """Their bytes, the most significant one first if `is_big`."""
        order = ">" if is_big else "<"
        return self.stored(vector).astype(order + self.storage, copy=False).tobytes()


def element_type(name: ElementType) -> Elements:
    """The type `name`."""
    return _TYPES[name]


def _of_numpy(storage: str) -> Elements:
    return Elements(storage, lambda vector: vector.astype(storage), lambda stored: stored)


def _bfloat16(vector: np.ndarray) -> np.ndarray:
    """The upper halves of float32 elements, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = vector.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(vector), 0x7FC0, rounded).astype(np.uint16)


def _of_bfloat16(stored: np.ndarray) -> np.ndarray:
    return (stored.astype(np.uint32) << 16).view(np.float32)


def _float8(mantissa_bits: int, top: int) -> Elements:
    """A type of 8 bits. `top` is the code of what larger numbers become: the largest one, or
    infinity in the type that has it."""
    exponents, mantissas = np.divmod(np.arange(0x80), 1 << mantissa_bits)
    fractions = mantissas / (1 << mantissa_bits) + (exponents > 0)
    bias = (1 << (6 - mantissa_bits)) - 1
    magnitudes = np.ldexp(fractions, np.maximum(exponents, 1) - bias).astype(np.float32)
    # Numbers above middles[i] round to i + 1. Those in the middle round to the even one.
    middles = (magnitudes[:top] + magnitudes[1 : top + 1]) / 2
    middles[1::2] = np.nextafter(middles[1::2], np.float32(0))
    if top == _INFINITE_E5M2:
        magnitudes[top] = np.inf
    magnitudes[top + 1 :] = np.nan
    table = np.concatenate([magnitudes, -magnitudes])

    def stored(vector: np.ndarray) -> np.ndarray:
        codes = np.searchsorted(middles, np.abs(vector)).astype(np.uint8)
        codes[np.isnan(vector)] = _NAN
        return codes | (np.signbit(vector).astype(np.uint8) << 7)

    return Elements("u1", stored, lambda codes: table[codes])


_TYPES: dict[ElementType, Elements] = {
    "bfloat16": Elements("u2", _bfloat16, _of_bfloat16),
    "float16": _of_numpy("f2"),
    "float32": _of_numpy("f4"),
    "fp8_e4m3": _float8(mantissa_bits=3, top=_LARGEST_E4M3),
    "fp8_e5m2": _float8(mantissa_bits=2, top=_INFINITE_E5M2),
}
