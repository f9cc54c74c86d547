"""T5's buckets of distances (arXiv 1910.10683): a bias for each near distance, and one for several
that are far, on each side."""

from __future__ import annotations

import numpy as np

from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.computed import small_columns
from pagemill.models.base import ModelConfigError
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_MAX_REACH = 4096


def distance_biases(
    weights: Weights,
    name: str,
    shape: AttentionShape,
    buckets: int,
    reach: int,
    *,
    causal: bool = False,
) -> Tensor:
    """f32 [heads of this rank, 2 reach + 1], the `biases` of `ops.attention`, from the table `name`
    [buckets, heads]; distances from `reach` on share the last bucket of their side. `causal`: all
    buckets are those of keys behind the query.

    Raises:
        ModelConfigError: the buckets do not fit the reach.
    """
    heads = shape.features(shape.heads)
    begin, end = heads.begin // shape.head_dim, heads.end // shape.head_dim
    columns = Part(begin, end, shape.heads)
    rows = bucket_of_each_distance(buckets, reach, causal=causal)
    return small_columns(weights, name, (buckets, shape.heads), columns=columns, rows=rows)


def bucket_of_each_distance(buckets: int, reach: int, *, causal: bool = False) -> list[int]:
    """The bucket of each distance (position of the key - position of the query) from -`reach` to
    `reach`. A quarter of the buckets are those of single distances behind the query, a quarter of
    ranges there, which grow exponentially; the other half are those in front of it. `causal`: keys
    in front of it, which no query sees, share the bucket of distance 0 and leave twice as many to
    those behind.

    Raises:
        ModelConfigError: there are fewer than four buckets, or the reach is not beyond the single
            distances.
    """
    side = buckets if causal else buckets // 2
    single = side // 2
    if single < 1 or not single < reach <= _MAX_REACH:
        raise ModelConfigError(
            f"{buckets} buckets up to a distance of {reach}: at least 4, and a distance above"
            f" {single}, at most {_MAX_REACH}, are supported"
        )
    # In f32, as models were trained: a distance at a border falls to the side it fell to then.
    far = np.maximum(np.arange(reach + 1), single).astype(np.float32)
    growth = np.log(far / np.float32(single)) / np.float32(np.log(reach / single))
    ranges = single + (growth * np.float32(side - single)).astype(np.int64)
    near = np.arange(reach + 1)
    behind = np.where(near < single, near, np.minimum(ranges, side - 1))
    ahead = [0] * reach if causal else (side + behind[1:]).tolist()
    return [*behind[::-1].tolist(), *ahead]
