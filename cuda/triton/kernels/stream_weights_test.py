"""The kernel against the op's reference, by Triton's interpreter."""

import pytest
import torch
from pagemill.ops.stream_weights import reference

import cuda.triton.interpreter  # noqa: F401
from cuda.triton.kernels.stream_weights import SPECIALIZATIONS, stream_weights

# Elements outside of a matrix are not numbers until they are masked.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

EPS = 1e-3


def random(*shape: int, seed: int) -> torch.Tensor:
    """Numbers from -2 to 2."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 4 - 2


def run(
    mixes: torch.Tensor, base: torch.Tensor, scale: torch.Tensor, streams: int, iterations: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel's results, in NaN; `iterations` 0: without `after`."""
    constants = SPECIALIZATIONS["streams_4" if streams <= 4 else "streams_16"].constants
    tokens, width = len(mixes), (streams + 1) * streams
    before = torch.full((tokens, streams), torch.nan)
    after = torch.full((tokens, width + 3), torch.nan)
    stream_weights[(-(-tokens // constants["BLOCK"]),)](
        mixes,
        base,
        scale,
        before,
        after,
        mixes.stride(0),
        before.stride(0),
        after.stride(0),
        tokens,
        streams,
        max(iterations, 1),
        EPS,
        int(iterations > 0),
        **constants,
    )
    assert after[:, width:].isnan().all()
    return before, after[:, :width].reshape(tokens, streams, streams + 1)


@pytest.mark.parametrize("streams", [1, 2, 4, 7, 16])
@pytest.mark.parametrize("iterations", [0, 1, 20])
def test_it_computes_the_op(streams: int, iterations: int) -> None:
    both = iterations > 0
    width = streams * (streams + 2) if both else streams
    mixes = random(9, width + 2, seed=1)[:, :width]
    base, scale = random(width, seed=2), random(3 if both else 1, seed=3)
    before, after = run(mixes, base, scale, streams, iterations)
    expected = reference([mixes, base, scale], {"eps": EPS, "iterations": iterations}, None)
    # The contract's bound.
    bound = 4e-7 * (8 + 4 * iterations)
    torch.testing.assert_close(before, expected[0], atol=1e-7, rtol=bound)
    if both:
        torch.testing.assert_close(after, expected[1], atol=1e-7, rtol=bound)
    else:
        assert after.isnan().all()


def test_a_row_does_not_depend_on_others() -> None:
    mixes, base, scale = random(9, 24, seed=1), random(24, seed=2), random(3, seed=3)
    before, after = run(mixes, base, scale, 4, 5)
    alone = run(mixes[6:7], base, scale, 4, 5)
    assert torch.equal(before[6:7], alone[0])
    assert torch.equal(after[6:7], alone[1])
