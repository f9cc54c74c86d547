"""Room after a prompt, and token ids that make no sense."""

import numpy as np
import pytest

from pagemill.engine.limits import check_prompt, each_checked, resolve_max_tokens, text_prompt
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import RenderedPrompt


@pytest.mark.parametrize(
    ("prompt", "requested", "default", "room"),
    [
        (10, None, None, 90),
        (10, None, 16, 16),
        (90, None, 16, 10),  # a default is cut, not refused
        (10, 90, 16, 90),
        (10, 0, 16, 0),
        (100, 0, 16, 0),  # scoring a prompt that fills the context
        (99, None, None, 1),
    ],
)
def test_room(prompt: int, requested: int | None, default: int | None, room: int) -> None:
    assert resolve_max_tokens(prompt, requested, default, 100) == room


@pytest.mark.parametrize(
    ("prompt", "requested", "param"),
    [(100, None, "prompt"), (101, 0, "prompt"), (100, 1, "prompt"), (10, 91, "max_tokens")],
)
def test_no_room(prompt: int, requested: int | None, param: str) -> None:
    with pytest.raises(EngineError) as refusal:
        resolve_max_tokens(prompt, requested, 16, 100)
    assert refusal.value.code == "INVALID_ARGUMENT"
    assert refusal.value.param == param
    assert "100" in refusal.value.message and str(prompt) in refusal.value.message


def test_a_refusal_says_which_of_several_prompts_it_is_about() -> None:
    good, bad = text_prompt([1]), text_prompt([])

    def check(prompt: RenderedPrompt) -> int:
        check_prompt(prompt, 256, "input")
        return resolve_max_tokens(len(prompt), 100, None, 100, "input")

    for prompts, words in (
        ([good, good], "`max_tokens` is too large"),
        ([bad], "`input` is empty"),
        ([bad, good], "`input[0]` is empty"),
    ):
        with pytest.raises(EngineError) as refusal:
            each_checked(prompts, "input", check)
        assert refusal.value.message.startswith(words)
    with pytest.raises(EngineError, match=r"`input\[1\]` has 200 tokens"):
        each_checked(
            [good, text_prompt([1] * 200)],
            "input",
            lambda prompt: resolve_max_tokens(len(prompt), 1, None, 100, "input"),
        )
    assert each_checked([good, bad], "input", len) == [1, 0]


def test_ids_of_the_vocabulary() -> None:
    prompt = text_prompt([0, 255])
    check_prompt(prompt, 256)
    assert prompt.token_ids.dtype == np.int32 and prompt.token_ids.tolist() == [0, 255]


@pytest.mark.parametrize("ids", [[], [-1], [1, 256], [2**31], [2**63], [-(2**70)]])
def test_bad_ids(ids: list[int]) -> None:
    with pytest.raises(EngineError) as refusal:
        check_prompt(text_prompt(ids, "input"), 256, "input")
    assert refusal.value.code == "INVALID_ARGUMENT"
    assert refusal.value.param == "input"
