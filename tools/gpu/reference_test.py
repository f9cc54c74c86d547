"""What counts as close to a reference."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tools.gpu.reference import BF16_FACTOR, F32_BOUND, Reference, difference
from tools.gpu.started import Answer

# One prompt of three tokens, three generated.
_REFERENCE = Reference(
    "test",
    prompts=[[7, 8, 9]],
    generated=[[4, 5, 6]],
    logprobs=[[-1.0, -2.0, -3.0, -4.0, -5.0]],
    margins=[[1.0, 1.0, 1.0]],
    bf16_error=0.1,
)


def _answer(tokens: list[int], by: list[float]) -> Answer:
    logprobs = [a + b for a, b in zip(_REFERENCE.logprobs[0], by, strict=True)]
    return Answer(tokens=tokens, logprobs=logprobs)


def test_f32_counts_the_largest_difference():
    found = difference([_answer([4, 5, 6], [0, 0, 5e-4, 0, 0])], _REFERENCE, "f32")
    assert found.passed and found.error == pytest.approx(5e-4) and found.compared == 5
    found = difference([_answer([4, 5, 6], [0, 0, -2 * F32_BOUND, 0, 0])], _REFERENCE, "f32")
    assert not found.passed and found.lost == 0


def test_bf16_counts_the_root_mean_square():
    found = difference([_answer([4, 5, 6], [0.2, 0, 0, 0, 0])], _REFERENCE, "bf16")
    assert found.passed and found.error == pytest.approx(0.2 / math.sqrt(5))
    assert found.bound == pytest.approx(BF16_FACTOR * 0.1)
    assert not difference([_answer([4, 5, 6], [0.3] * 5)], _REFERENCE, "bf16").passed


def test_a_few_errors_in_bf16_do_not_count_where_experts_are_chosen():
    """A choice that changes; neither does it in a trusted implementation."""
    long = replace(_REFERENCE, prompts=[[7] * 98], logprobs=[[-1.0] * 100], has_experts=True)
    tokens = [4, 5, 6]
    for others, passed in ((0.0, True), (0.3, False)):
        answer = Answer(tokens=tokens, logprobs=[-1.0 + others] * 95 + [8.0] * 5)
        found = difference([answer], long, "bf16")
        assert found.passed == passed and found.error == pytest.approx(others)
    assert not difference([Answer(tokens, [-1.0] * 94 + [8.0] * 6)], long, "bf16").passed
    dense = replace(long, has_experts=False)
    assert not difference([Answer(tokens, [-1.0] * 99 + [8.0])], dense, "bf16").passed


def test_another_token_is_wrong_unless_it_is_as_likely():
    """What follows it cannot be compared."""
    answer = _answer([4, 1, 6], [0, 0, 0, 9, 9])
    found = difference([answer], _REFERENCE, "f32")
    assert (found.compared, found.equal_tokens, found.lost) == (3, 1, 1.0)
    assert not found.passed
    near = replace(_REFERENCE, margins=[[1.0, F32_BOUND, 1.0]])
    assert difference([answer], near, "f32").passed
    lost_before = replace(_REFERENCE, bf16_lost=0.6)  # by a trusted implementation, too
    assert difference([answer], lost_before, "bf16").passed


def test_nan_never_passes():
    for dtype in ("f32", "bf16"):
        answer = _answer([4, 5, 6], [0, math.nan, 0, 0, 0])
        assert not difference([answer], _REFERENCE, dtype).passed


def test_it_is_saved_beside_the_checkpoint(tmp_path: Path):
    _REFERENCE.save(tmp_path)
    assert Reference.load(tmp_path) == _REFERENCE
