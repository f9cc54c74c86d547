"""`mix_streams` in Triton: a program for BLOCK columns of a token, in all mixes.

The sums of a block stay in registers; the streams of a block are read from memory for the first
mix, and from L1 for the others. cc/ops/mix_streams has the formula.
"""

import triton
import triton.language as tl

from cuda.triton.specialization import ACTIVATIONS, Specialization


@triton.jit
def mix_streams(
    x,
    weights,
    y,
    z,
    x_stride,
    weights_stride,
    y_stride,
    z_stride,
    width,
    streams,
    mixes,
    joined,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """x [tokens, streams * width], weights f32 [tokens, mixes, streams + joined], and y [tokens,
    width] if `joined` is 1, else it is 0 -> z [tokens, mixes * width]. Strides are in elements, of
    tokens. UNROLL streams are loaded before the first is used. Grid: tokens, blocks of columns.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    x += token * x_stride
    weights += token * weights_stride
    z += token * z_stride
    branch = tl.load(y + token * y_stride + column, mask=inside & (joined == 1), other=0.0)
    for mix in range(mixes):
        total = tl.zeros([BLOCK], tl.float32)
        for first in range(0, streams, UNROLL):
            for i in tl.static_range(UNROLL):
                stream = first + i
                exists = stream < streams
                weight = tl.load(weights + stream, mask=exists, other=0.0)
                values = tl.load(x + stream * width + column, mask=inside & exists, other=0.0)
                total += weight * values.to(tl.float32)
        weight = tl.load(weights + streams, mask=joined == 1, other=0.0)
        total += weight * branch.to(tl.float32)
        tl.store(z + mix * width + column, total.to(z.dtype.element_ty), mask=inside)
        weights += streams + joined


def _specialization(dtype: str, multiple: str) -> Specialization:
    act, number = f"*{dtype}{multiple}", f"i64{multiple}"
    return Specialization(
        signature={
            "x": act,
            "weights": "*fp32",
            "y": act,
            "z": act,
            "x_stride": number,
            "weights_stride": "i64",
            "y_stride": number,
            "z_stride": number,
            "width": f"i32{multiple}",
            "streams": "i32",
            "mixes": "i32",
            "joined": "i32",
        },
        constants={"BLOCK": 1024, "UNROLL": 4},
        warps=4,
    )


# Aligned: rows begin at multiples of 16 bytes and have a multiple of 16 elements, so that a thread
# reads 16 bytes at a time.
SPECIALIZATIONS = {
    name + suffix: _specialization(dtype, multiple)
    for name, dtype in ACTIVATIONS.items()
    for suffix, multiple in {"": "", "_aligned": ":16"}.items()
}
