"""The location of a tensor on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """A dense row-major tensor, `offset` bytes from the start of `file`; dtype names as in
    `pagemill.ops.dtypes`. If `negated_exp`, what is stored are -exp(x) of its values x."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    negated_exp: bool = False

    def fits(self, shape: tuple[int, ...]) -> bool:
        """True if it has `shape`, without regard to dimensions of 1, which GGUF leaves out."""
        return [dim for dim in self.shape if dim != 1] == [dim for dim in shape if dim != 1]
