"""Functions of outputs that have begun in the prompt, as those of beams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pagemill.engine.output_functions import NO_FUNCTIONS, OutputFunctions, continuing


class Ascending:
    """Each token is larger than the one before."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def fill_mask(self, mask: np.ndarray) -> None:
        last = self.tokens[-1] if self.tokens else -1
        mask[:] = 0xFFFFFFFF << (last + 1) & 0xFFFFFFFF

    def accept(self, token_id: int) -> bool:
        if self.tokens and token_id <= self.tokens[-1]:
            return False
        self.tokens.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        del self.tokens[len(self.tokens) - num_tokens :]

    def forced(self, most: int) -> Sequence[int]:
        return ()


def test_matchers_have_accepted_what_is_written() -> None:
    prompt = np.array([9, 3, 5], np.int32)
    make = continuing(OutputFunctions(Ascending), 2, prompt).token_matcher
    assert make is not None
    matcher, mask = make(), np.zeros(1, np.uint32)
    matcher.fill_mask(mask)
    assert mask[0] == 0xFFFFFFFF << 6 & 0xFFFFFFFF
    assert matcher.accept(7) and not matcher.accept(7)
    assert make().accept(6)  # of another output
    refused = continuing(OutputFunctions(Ascending), 3, prompt).token_matcher
    assert refused is not None
    with pytest.raises(ValueError, match="may not have token 3"):
        refused()


def test_processors_see_what_is_written_as_outputs() -> None:
    seen: list[list[int]] = []

    def process(prompt: np.ndarray, outputs: np.ndarray, logits: np.ndarray) -> None:
        assert prompt.dtype == outputs.dtype == np.int32
        seen.extend([prompt.tolist(), outputs.tolist()])
        logits[0] = 1

    prompt, logits = np.array([9, 3, 5], np.int32), np.zeros(2, np.float32)
    function = continuing(OutputFunctions(logits_processor=process), 2, prompt).logits_processor
    assert function is not None
    function(prompt, np.array([8], np.int32), logits)
    assert seen == [[9], [3, 5, 8]] and logits[0] == 1


def test_no_functions_stay_none() -> None:
    assert continuing(NO_FUNCTIONS, 1, np.array([1], np.int32)) == NO_FUNCTIONS
