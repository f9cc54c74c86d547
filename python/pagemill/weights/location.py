"""The location of a tensor on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """A dense row-major tensor, `offset` bytes from the start of `file`; dtype names as in
    `pagemill.ops.dtypes`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
