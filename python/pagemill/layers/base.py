"""What a layer needs of whoever holds the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagemill.ops.trace import Tensor, Trace


class Weights(Protocol):
    """Declares named tensors of one model in one trace; implemented by `weights.binder`."""

    trace: Trace

    def has(self, name: str) -> bool:
        """Does the model have a tensor of this name?"""
        ...

    def matrix(self, name: str, shape: tuple[int, int]) -> Tensor:
        """The weight of `linear` or `embedding`, [out, in], as it is stored."""
        ...

    def vector(self, name: str, length: int) -> Tensor:
        """A norm or bias, f32 [length]."""
        ...

    def row(self, name: str, index: int, shape: tuple[int, int]) -> Tensor:
        """One row of a matrix of `shape`, as an f32 vector."""
        ...

    def frequencies(self, name: str, values: Sequence[float]) -> Tensor:
        """An f32 constant, declared once."""
        ...
