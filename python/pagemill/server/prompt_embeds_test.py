"""`prompt_embeds`: what is no tensor of the model's width is refused by a sentence that says so."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from pagemill.server import prompt_embeds
from pagemill.server.errors import ApiError
from pagemill.server.prompt_embeds import decoded_embeds

WIDTH, LONGEST = 4, 40


def sent(rows: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(save({"rows": rows})).decode()


def rows(count: int, width: int = WIDTH) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).normal(size=(count, width)).astype(np.float32)


def test_each_tensor_is_a_prompt() -> None:
    given = [rows(3), rows(LONGEST).astype(np.float16)]
    prompts = decoded_embeds([sent(each) for each in given], WIDTH, LONGEST)
    assert [len(prompt) for prompt in prompts] == [3, LONGEST]
    for prompt, each in zip(prompts, given, strict=True):
        kept = np.concatenate([item.features.rows for item in prompt.media])
        np.testing.assert_array_equal(kept, each)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no base64", "is not base64"),
        ("", "cannot be read: the tensor: cut short or no safetensors file"),
        (sent(rows(3).astype(np.int32)), "cannot be read: the tensor is of i32"),
        (sent(rows(3, 5)), r"have the shape \[3, 5\]; this model takes \[tokens, 4\]"),
        (sent(rows(LONGEST + 1)), "are 41 rows; this model's maximum context length is 40"),
        (sent(rows(3) * np.float32(np.inf)), "have numbers that are not finite"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(ApiError, match=rf"^`prompt_embeds\[1\]` {words}") as error:
        decoded_embeds([sent(rows(2)), text], WIDTH, LONGEST)
    assert (error.value.status, error.value.param) == (400, "prompt_embeds")


def test_all_prompts_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_embeds, "MAX_PREPARED_BYTES", 10 * WIDTH * 4)
    halves = [sent(rows(count).astype(np.float16)) for count in (4, 6, 1)]
    assert len(decoded_embeds(halves[:2], WIDTH, LONGEST)) == 2
    with pytest.raises(ApiError, match=r"`prompt_embeds\[2\]` and those .* more than 10 rows"):
        decoded_embeds(halves, WIDTH, LONGEST)
