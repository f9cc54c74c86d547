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
    """`rows` [N, n * width] as n parts [N, width]; halves of halves, so that few are copied
    often."""
    count = rows.width // width
    if count == 1:
        return [rows]
    first, second = ops.split(rows, count // 2 * width)
    return [*side_by_side(first, width), *side_by_side(second, width)]


def add_rows(x: Tensor, y: Tensor, tokens: Tensor) -> Tensor:
    """x [T, H] with y [N, H] added to its rows `tokens`, i32 [N]."""
    return ops.scatter_rows(x, ops.add(ops.select_rows(x, tokens), y), tokens)
