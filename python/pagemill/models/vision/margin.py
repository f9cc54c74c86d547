"""Attention to all patches but those of a margin, by columns behind those of each head: queries
have a one there, and keys a negative number if they are of a margin, so that the weight of such a
key is 0. Both are exact in f32, bf16 and f16.

    columns = margin_columns(margin)
    y = attend_beside_margin(q, k, v, shape, rotary, columns)
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.attention import AttentionShape
from pagemill.layers.media_rows import side_by_side
from pagemill.layers.rotary import Rotary
from pagemill.ops.trace import Tensor

MARGIN_COLUMNS = 2
APART = -(2.0**14)
"""Of a key that is not seen: times the scale of scores, far below the range of an exponential."""


@dataclass(frozen=True, slots=True)
class MarginColumns:
    """Columns [T, n], of margins 1, of the heads of queries and of keys."""

    queries: Tensor
    keys: Tensor


def margin_columns(margin: Tensor) -> MarginColumns:
    """The columns for `margin` [T, MARGIN_COLUMNS]: ones, and whether a patch is of a margin."""
    ones, is_margin = ops.split(margin, 1)
    return MarginColumns(ones, ops.scale(is_margin, APART))


def attend_beside_margin(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shape: AttentionShape,
    rotary: Rotary | None,
    columns: MarginColumns,
    *,
    chunk: int = 0,
    biases: Tensor | None = None,
) -> Tensor:
    """q [T, heads * head_dim], k, v [T, kv_heads * head_dim] -> [T, heads * head_dim]: each patch
    attends to those that are of no margin; with a `chunk`, to those of the same chunk of so many.
    `rotary` turns q and k; `biases` are those of `ops.attention`."""
    heads, dim = shape.heads, shape.head_dim
    q, k = _append_to_heads(q, columns.queries, dim), _append_to_heads(k, columns.keys, dim)
    if rotary is not None:
        q, k = rotary(q, k)
    v = _append_to_heads(v, columns.keys, dim)  # as wide as keys; what comes of them is dropped
    y = ops.attention(
        q,
        k,
        v,
        scale=shape.scale,
        causal=False,
        window=chunk,
        chunked=chunk > 0,
        biases=biases,
    )
    return ops.split(y, dim, row_shapes=((heads * dim,), None))[0]


def _append_to_heads(x: Tensor, columns: Tensor, dim: int) -> Tensor:
    """x [T, heads * dim], columns [T, C] -> [T, heads, dim + C]."""
    parts = [part for head in side_by_side(x, dim) for part in (head, columns)]
    return ops.concat_all(parts, (x.width // dim, dim + columns.width))
