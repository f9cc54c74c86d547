"""Token ids to vectors, and vectors to logits."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


def embedding(
    weights: Weights, name: str, ids: Tensor, shape: tuple[int, int], *, scale: float = 1.0
) -> Tensor:
    """ids i32 [N] -> rows of `<name>.weight` [V, H], times scale: [N, H]."""
    y = ops.embedding(ids, weights.matrix(f"{name}.weight", shape), scale=scale)
    return weights.adapted_embedding(name, ids, y, shape[0], scale=scale)


def add_positions(
    weights: Weights,
    name: str,
    x: Tensor,
    positions: Tensor,
    count: int,
    *,
    first: int = 0,
    bounded: bool = True,
) -> Tensor:
    """x [N, H] plus row `first` + position of `<name>.weight`, which has `first` + `count` rows. If
    positions are not `bounded` by the length of a context, others read row `first`."""
    rows = Part(first, first + count, first + count)
    table = weights.matrix(f"{name}.weight", (rows.total, x.width), rows=rows)
    return ops.add(x, ops.embedding(positions, table, outside=None if bounded else 0))


def logits(
    weights: Weights,
    x: Tensor,
    vocab_size: int,
    name: str,
    *,
    bias: bool = False,
    head: str = "lm_head",
) -> Tensor:
    """x [N, H] -> f32 [N, vocab] by the linear layer `name`: the head, or the embedding if they are
    tied. Ranks divide the vocabulary. Adapters know it as `head`, tied or not."""
    part = weights.shard.part(vocab_size)
    y = linear(weights, name, x, (part.size,), bias=bias, rows=part, dtype="f32", adapted_as=head)
    return y if part.whole else ops.all_gather(y, vocab_size, shard=weights.shard)
