"""Constraints on an output: which tokens may come next.

class Digits:
    def fill_mask(self, mask): mask[:] = DIGITS
    def accept(self, token_id): return bool(DIGITS[token_id // 32] >> (token_id % 32) & 1)
    def rollback(self, num_tokens): pass
    def forced(self, most): return []

llm.generate("The answer is", token_matcher=Digits)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np


class TokenMatcher(Protocol):
    """The state of one output; it begins empty. Called on a thread of the engine, one call at a
    time, while the forward pass runs; an exception fails the request."""

    def fill_mask(self, mask: np.ndarray) -> None:
        """Writes every word of `mask`, uint32 `[ceil(vocab_size / 32)]`, valid during the call: bit
        `t % 32` of word `t // 32` is set if token `t` may come next. Once an end-of-sequence token
        was accepted, only such tokens may."""
        ...

    def accept(self, token_id: int) -> bool:
        """Advances by a token that may come next; returns False, and stays, for any other."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last `num_tokens` accepted tokens: drafts are accepted to fill the masks
        behind them."""
        ...

    def forced(self, most: int) -> Sequence[int]:
        """Tokens that have to come next, in this order, `most` at most: the next step verifies them
        together. Asked where a mask leaves one token; none if it does not know."""
        ...


TokenMatcherFactory = Callable[[], TokenMatcher]
"""Creates the matcher of one output, and another one when a preempted request resumes."""
