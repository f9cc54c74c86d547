"""Manifold-constrained hyper-connections (Xie et al., 2025; DeepSeek-V4, section 2.2): several
residual streams in place of one. A branch reads a weighted sum of them; behind it, each is a mix of
all of them and of the branch's result (`around`), or itself and a share of the result (`beside`).
The weights are computed for each token.

Streams lie side by side in a row, [T, count * H].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

MAX_STREAMS = 8


@dataclass(frozen=True, slots=True)
class Streams:
    """`count` streams; mixes are normalized in `iterations`; `eps` is added to shares, `norm_eps`
    to the variance of what weights are projected from."""

    count: int
    iterations: int
    eps: float
    norm_eps: float


def divide(x: Tensor, streams: Streams) -> Tensor:
    """x [T, H] -> streams that are all x."""
    return x if streams.count == 1 else ops.concat(*[x] * streams.count)


def around(
    weights: Weights, name: str, x: Tensor, streams: Streams, branch: Callable[[Tensor], Tensor]
) -> Tensor:
    """The streams x behind `branch`, which computes [T, H] -> [T, H].

    Weights: `<name>_{fn,base,scale}`.
    """
    rows = streams.count * (streams.count + 2)
    mixes, base = _project(weights, name, x, rows, streams)
    scale = weights.vector(f"{name}_scale", 3)
    before, after = ops.stream_weights(
        mixes, base, scale, iterations=streams.iterations, eps=streams.eps
    )
    return ops.mix_streams(x, after, branch(ops.mix_streams(x, before)))


def beside(
    weights: Weights,
    name: str,
    x: Tensor,
    streams: Streams,
    magnitude: float,
    branch: Callable[[Tensor], Tensor],
) -> Tensor:
    """The streams x behind `branch`, of whose result each has a share, up to `magnitude`, and that
    are not mixed.

    Weights: `<name>_{fn,base,scale}`: the rows and sums of what `branch` reads, then those of the
    shares.
    """
    count = streams.count
    reads, shares = (
        _project(weights, name, x, 2 * count, streams, Part(begin, begin + count, 2 * count))
        for begin in (0, count)
    )
    scales = [weights.vector(f"{name}_scale", 2, part=Part(i, i + 1, 2)) for i in range(2)]
    before = ops.last_stream_weights(*reads, scales[0], eps=streams.eps)
    # magnitude * sigmoid(...) + eps
    after = ops.last_stream_weights(*shares, scales[1], eps=streams.eps / magnitude)
    y = branch(ops.mix_streams(x, before))
    each = ops.concat(*[y] * count, row_shape=(count, y.width))
    return ops.add(x, ops.scale_groups(each, ops.scale(after, magnitude)))


def join(weights: Weights, name: str, x: Tensor, streams: Streams) -> Tensor:
    """The streams x behind the last layer -> their weighted sum, [T, H].

    Weights: `<name>_{fn,base,scale}`.
    """
    mixes, base = _project(weights, name, x, streams.count, streams)
    scale = weights.vector(f"{name}_scale", 1)
    return ops.mix_streams(x, ops.last_stream_weights(mixes, base, scale, eps=streams.eps))


def _project(
    weights: Weights, name: str, x: Tensor, rows: int, streams: Streams, part: Part | None = None
) -> tuple[Tensor, Tensor]:
    """The projection f32 [T, rows] of the normalized streams, and what is added to it, [rows]; or
    the `part` of both."""
    flat = norm.rms_norm(weights, name, x, streams.norm_eps, weight=False)
    own = () if part is None else part.indices
    matrix = weights.small(f"{name}_fn", (rows, x.width), row_order=own)
    base = weights.vector(f"{name}_base", rows, part=part)
    return ops.linear(flat, matrix, None, dtype="f32"), base
