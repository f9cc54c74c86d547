"""Types of the elements of embeddings in responses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagemill.server.protocol.pooling import ElementType


@dataclass(frozen=True, slots=True)
class Elements:
    """A type. `storage` is numpy's for its bytes; numpy has none for bfloat16 itself."""

    storage: str
    is_bfloat16: bool = False

    def values(self, vector: np.ndarray) -> list[float]:
        """The elements of a float32 `vector`, rounded to the type."""
        if self.is_bfloat16:
            return (_bfloat16(vector).astype(np.uint32) << 16).view(np.float32).tolist()
        return vector.astype(self.storage).tolist()

    def content(self, vector: np.ndarray, *, is_big: bool) -> bytes:
        """Their bytes, the most significant one first if `is_big`."""
        stored = _bfloat16(vector) if self.is_bfloat16 else vector
        return stored.astype((">" if is_big else "<") + self.storage).tobytes()


_TYPES: dict[ElementType, Elements] = {
    "bfloat16": Elements("u2", is_bfloat16=True),
    "float16": Elements("f2"),
    "float32": Elements("f4"),
}


def element_type(name: ElementType) -> Elements:
    """The type `name`."""
    return _TYPES[name]


def _bfloat16(vector: np.ndarray) -> np.ndarray:
    """The upper halves of float32 elements, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = vector.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(vector), 0x7FC0, rounded).astype(np.uint16)
