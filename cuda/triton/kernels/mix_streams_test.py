"""The kernel against the op's reference, by Triton's interpreter."""

import pytest
import torch
from pagemill.ops.mix_streams import reference

import cuda.triton.interpreter  # noqa: F401
from cuda.triton.kernels.mix_streams import SPECIALIZATIONS, mix_streams

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

# Sums of at most 7 products below 1 in another order; then one rounding of either to its type.
TOLERANCES = {"f32": 5e-6, "bf16": 2.0**-7, "f16": 2.0**-9}


def rows(tokens: int, width: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Rows of a wider buffer, whose other elements are NaN."""
    generator = torch.Generator().manual_seed(seed)
    buffer = torch.full((tokens, width + 5), torch.nan, dtype=dtype)
    buffer[:, :width] = torch.rand(tokens, width, generator=generator).to(dtype) * 2 - 1
    return buffer[:, :width]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("joined", [0, 1])
@pytest.mark.parametrize(
    ("streams", "mixes", "width"), [(1, 1, 1), (4, 1, 33), (4, 4, 1024), (6, 2, 1500)]
)
def test_it_computes_the_op(dtype: str, joined: int, streams: int, mixes: int, width: int) -> None:
    act, tokens, constants = TYPES[dtype], 3, SPECIALIZATIONS[dtype].constants
    x, y = rows(tokens, streams * width, act, 1), rows(tokens, width, act, 2)
    weights = rows(tokens, mixes * (streams + joined), torch.float32, 3)
    z = torch.full((tokens, mixes * width + 3), torch.nan, dtype=act)
    mix_streams[(tokens, -(-width // constants["BLOCK"]))](
        x,
        weights,
        y if joined else x,
        z,
        x.stride(0),
        weights.stride(0),
        y.stride(0) if joined else x.stride(0),
        z.stride(0),
        width,
        streams,
        mixes,
        joined,
        **constants,
    )
    operands = [x, weights.reshape(tokens, mixes, -1)] + [y] * joined
    (expected,) = reference(operands, {}, None)
    torch.testing.assert_close(z[:, :-3], expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
    assert z[:, -3:].isnan().all()
