"""Embeddings of media in a decoder that reads results of several layers of a tower: the first take
the place of placeholder tokens' embeddings, the others are added to what the first layers make of
them (DeepStack, arXiv 2406.04334).

    embeddings, *added = side_by_side(inputs.media.rows, hidden_size)
    x = add_rows(x, added[layer], inputs.media.tokens)      # x is the result of this layer
"""

from __future__ import annotations

from pagemill import ops
from pagemill.ops.trace import Tensor


def side_by_side(rows: Tensor, width: int) -> list[Tensor]:
    """`rows` [N, n * width] as n parts [N, width]."""
    parts: list[Tensor] = []
    while rows.width > width:
        part, rows = ops.split(rows, width)
        parts.append(part)
    return [*parts, rows]


def add_rows(x: Tensor, y: Tensor, tokens: Tensor) -> Tensor:
    """x [T, H] with y [N, H] added to its rows `tokens`, i32 [N]."""
    return ops.scatter_rows(x, ops.add(ops.select_rows(x, tokens), y), tokens)
