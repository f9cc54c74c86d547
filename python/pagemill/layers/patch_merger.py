"""A linear layer or convolution that makes a vector of the patches of a square."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.shard import Stripe
from pagemill.ops.trace import Tensor


def merge_patches(
    weights: Weights,
    name: str,
    x: Tensor,
    shape: tuple[int, ...],
    *,
    count: int,
    bias: bool = False,
) -> Tensor:
    """x [N, count * width], the patches of a square one after the other -> [N, out]. The weight
    `<name>.weight`, of `shape` [out, width * count] or that of a convolution, has the columns of
    each channel, of the patches one after the other: each patch has a stripe of them."""
    width, total = x.width // count, None
    for index in range(count):
        patch = x
        if index < count - 1:
            patch, x = ops.split(x, width)
        matrix = weights.column_stripe(f"{name}.weight", shape, Stripe(index, count))
        vector = weights.vector(f"{name}.bias", shape[0]) if bias and total is None else None
        y = ops.linear(patch, matrix, vector)
        total = y if total is None else ops.add(total, y)
    assert total is not None
    return total
