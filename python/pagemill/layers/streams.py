"""Manifold-constrained hyper-connections (Xie et al., 2025; DeepSeek-V4, section 2.2): several
residual streams in place of one. A branch reads a weighted sum of them; behind it, each is a mix of
all of them and of the branch's result. The weights are computed for each token.

Streams lie side by side in a row, [T, count * H].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
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


def join(weights: Weights, name: str, x: Tensor, streams: Streams) -> Tensor:
    """The streams x behind the last layer -> their weighted sum, [T, H].

    Weights: `<name>_{fn,base,scale}`.
    """
    mixes, base = _project(weights, name, x, streams.count, streams)
    scale = weights.vector(f"{name}_scale", 1)
    return ops.mix_streams(x, ops.last_stream_weights(mixes, base, scale, eps=streams.eps))


def _project(
    weights: Weights, name: str, x: Tensor, rows: int, streams: Streams
) -> tuple[Tensor, Tensor]:
    """The projection f32 [T, rows] of the normalized streams, and what is added to it, [rows]."""
    flat = norm.rms_norm(weights, name, x, streams.norm_eps, weight=False)
    matrix = weights.small(f"{name}_fn", (rows, x.width))
    return ops.linear(flat, matrix, None, dtype="f32"), weights.vector(f"{name}_base", rows)
