"""The tail of an embedding model."""

from __future__ import annotations

from pagemill import ops
from pagemill.ops.trace import Tensor

_KINDS = {"first": ops.PoolKind.FIRST, "last": ops.PoolKind.LAST, "mean": ops.PoolKind.MEAN}


def pool(x: Tensor, kind: str, *, normalize: bool) -> Tensor:
    """x [T, H] -> [R, H]: "mean", "first" (CLS) or "last" of each request's tokens.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in _KINDS:
        raise ValueError(f"unknown pooling {kind!r}; known: {', '.join(_KINDS)}")
    return ops.pool(x, _KINDS[kind], normalize=normalize)
