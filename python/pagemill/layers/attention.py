"""Attention over a paged cache."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """`scale` multiplies scores; `window` is how many tokens a query sees (0 = all)."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    causal: bool = True


def project_qkv(
    weights: Weights,
    names: tuple[str, str, str],
    x: Tensor,
    shape: AttentionShape,
    *,
    bias: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """x [T, H] -> q [T, heads, head_dim], k and v [T, kv_heads, head_dim]; `names` of the three
    linear layers."""
    q = linear(weights, names[0], x, (shape.heads, shape.head_dim), bias=bias)
    k = linear(weights, names[1], x, (shape.kv_heads, shape.head_dim), bias=bias)
    v = linear(weights, names[2], x, (shape.kv_heads, shape.head_dim), bias=bias)
    return q, k, v


def attend(q: Tensor, k: Tensor, v: Tensor, shape: AttentionShape, cache_name: str) -> Tensor:
    """Store k and v in a new cache of this name and attend: [T, heads, head_dim]."""
    cache = q.trace.cache(cache_name, shape.kv_heads, shape.head_dim, shape.window)
    ops.kv_write(k, v, cache)
    return ops.paged_attention(q, cache, scale=shape.scale, causal=shape.causal)
