"""`stream_weights` in Triton: a program for BLOCK tokens, whose matrices are a tile in registers.

One warp, so that sums over rows and columns are shuffles. cc/ops/stream_weights has the formula.
"""

import triton
import triton.language as tl

from cuda.triton.specialization import Specialization


@triton.jit
def stream_weights(
    mixes,
    base,
    scale,
    before,
    after,
    mixes_stride,
    before_stride,
    after_stride,
    tokens,
    streams,
    iterations,
    eps,
    has_after,
    BLOCK: tl.constexpr,
    STREAMS: tl.constexpr,
):
    """mixes f32 [tokens, streams * (streams + 2)], base of a row of them, scale f32 [3] -> before
    f32 [tokens, streams] and, if `has_after` is 1, after f32 [tokens, streams, streams + 1]; else
    rows of mixes have `streams` elements and scale has one. Strides are in elements, of tokens.
    At most STREAMS streams. Grid: blocks of tokens.
    """
    token = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    stream = tl.arange(0, STREAMS)
    is_token = token < tokens
    is_stream = stream < streams
    in_row = is_token[:, None] & is_stream[None, :]
    row = mixes + token * mixes_stride

    mixed = tl.load(row[:, None] + stream[None, :], mask=in_row, other=0.0) * tl.load(scale)
    mixed += tl.load(base + stream, mask=is_stream, other=0.0)[None, :]
    to = before + token[:, None] * before_stride + stream[None, :]
    tl.store(to, tl.sigmoid(mixed) + eps, mask=in_row)

    if has_after == 1:
        # Element [j, k] of a token's matrix: how much of stream j goes into stream k.
        j = stream[None, :, None]
        k = stream[None, None, :]
        in_matrix = is_token[:, None, None] & (j < streams) & (k < streams)
        at = 2 * streams + j * streams + k
        pairs = tl.load(row[:, None, None] + at, mask=in_matrix, other=0.0) * tl.load(scale + 2)
        pairs += tl.load(base + at, mask=(j < streams) & (k < streams), other=0.0)
        pairs = tl.where(in_matrix, pairs, float("-inf"))
        largest = tl.max(pairs, axis=2)[:, :, None]
        pairs = tl.where(in_matrix, tl.exp(pairs - largest), 0.0)
        pairs = pairs / tl.sum(pairs, axis=2)[:, :, None] + eps
        # Elements outside are 0 before each sum: 0 / 0 is none.
        pairs = tl.where(in_matrix, pairs, 0.0)
        pairs = tl.where(in_matrix, pairs / (tl.sum(pairs, axis=1)[:, None, :] + eps), 0.0)
        for _ in range(1, iterations):
            pairs = tl.where(in_matrix, pairs / (tl.sum(pairs, axis=2)[:, :, None] + eps), 0.0)
            pairs = tl.where(in_matrix, pairs / (tl.sum(pairs, axis=1)[:, None, :] + eps), 0.0)

        result = after + token * after_stride
        tl.store(result[:, None, None] + k * (streams + 1) + j, pairs, mask=in_matrix)
        at_result = streams + stream
        mixed = tl.load(row[:, None] + at_result[None, :], mask=in_row, other=0.0)
        mixed = mixed * tl.load(scale + 1)
        mixed += tl.load(base + at_result, mask=is_stream, other=0.0)[None, :]
        to = result[:, None] + stream[None, :] * (streams + 1) + streams
        tl.store(to, 2 * tl.sigmoid(mixed), mask=in_row)


def _specialization(streams: int, block: int) -> Specialization:
    pointers = ["mixes", "base", "scale", "before", "after"]
    strides = ["mixes_stride", "before_stride", "after_stride"]
    return Specialization(
        signature={
            **dict.fromkeys(pointers, "*fp32"),
            **dict.fromkeys(strides, "i64"),
            "tokens": "i32",
            "streams": "i32",
            "iterations": "i32",
            "eps": "fp32",
            "has_after": "i32",
        },
        constants={"BLOCK": block, "STREAMS": streams},
        warps=1,
    )


# By the most streams: four, as DeepSeek V4 has, and all that the op takes.
SPECIALIZATIONS = {
    "streams_4": _specialization(4, block=8),
    "streams_16": _specialization(16, block=1),
}
