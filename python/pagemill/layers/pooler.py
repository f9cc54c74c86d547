"""The tail of a model that pools: a vector for each request, or for each of its tokens."""

from __future__ import annotations

from pagemill import ops
from pagemill.ops.trace import Tensor

KINDS = {
    "first": ops.PoolKind.FIRST,
    "last": ops.PoolKind.LAST,
    "mean": ops.PoolKind.MEAN,
    "all": ops.PoolKind.ALL,
    "splade": ops.PoolKind.SPLADE,
}


def pool(x: Tensor, kind: str, *, normalize: bool = False, dtype: str = "f32") -> Tensor:
    """x [T, H] -> [R, H]: "mean", "first" (CLS) or "last" of each request's tokens; "all" gives
    [T, H].

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown pooling {kind!r:.40}; known: {', '.join(KINDS)}")
    return ops.pool(x, KINDS[kind], normalize=normalize, dtype=dtype)
