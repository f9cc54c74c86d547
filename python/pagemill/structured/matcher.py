"""Matchers of outputs: what back ends of grammars make."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagemill.structured.distinct_items import DistinctItems
from pagemill.structured.grammar import Reasoning

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from pagemill._native import TokenMatcher

_MAX_MESSAGE_CHARS = 500
_NO_TOKEN = "NoExtensionBias"  # llguidance: no token of the vocabulary may come next


Factory = Callable[[], "GrammarMatcher | TokenMatcher"]
"""Makes the matcher of an output."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A grammar for one vocabulary. `behind` makes factories of matchers that begin behind some
    reasoning; `num_chars` is what it counts where grammars are kept."""

    behind: Callable[[Reasoning | None], Factory]
    num_chars: int


class GrammarMatcher:
    """The state of one output. Implements `engine.token_matcher.TokenMatcher`."""

    def __init__(
        self,
        matcher: LLMatcher,
        eos_token_ids: Container[int],
        reasoning: Reasoning | None,
        distinct: DistinctItems | None,
    ) -> None:
        """Begins an output."""
        self._matcher = matcher
        self._distinct = distinct
        self._ends = eos_token_ids
        self._openers = reasoning.openers if reasoning is not None else ()
        self._closers = reasoning.closers if reasoning is not None else ()
        self._begins_within = reasoning is not None and reasoning.begins_within
        self._num_accepted = 0
        self._begun_at = -1 if self._begins_within else 0
        """How many tokens were accepted before the constraint began; -1 while it has not."""

    def fill_mask(self, mask: np.ndarray) -> None:
        """See `TokenMatcher`."""
        if self._begun_at < 0:
            mask.fill(0xFFFFFFFF)
            return
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            error = first_line(self._matcher.get_error())
            if error != _NO_TOKEN:
                raise RuntimeError(f"the grammar failed: {error}")
            mask.fill(0)
        elif self._distinct is not None:
            self._distinct.restrict(mask, self._matcher)
        if self._may_open:
            for opener in self._openers:
                mask[opener // 32] |= np.uint32(1 << opener % 32)

    def accept(self, token_id: int) -> bool:
        """See `TokenMatcher`."""
        if self._begun_at < 0:
            accepted = True
            if token_id in self._closers:
                self._begun_at = self._num_accepted + 1
        elif self._may_open and token_id in self._openers:
            accepted = True
            self._begun_at = -1
        elif token_id in self._ends:
            accepted = self._matcher.is_accepting() and self._matcher.consume_token(token_id)
        elif self._distinct is None:
            accepted = self._matcher.try_consume_tokens([token_id]) == 1
        else:
            accepted = self._distinct.may_come(token_id, self._matcher)
            accepted = accepted and self._matcher.try_consume_tokens([token_id]) == 1
            if accepted:
                self._distinct.accept(token_id)
        self._num_accepted += accepted
        return accepted

    def rollback(self, num_tokens: int) -> None:
        """See `TokenMatcher`."""
        constrained = self._num_accepted - self._begun_at if self._begun_at >= 0 else 0
        if taken_back := min(num_tokens, constrained):
            self._matcher.rollback(taken_back)
            if self._distinct is not None:
                self._distinct.rollback(taken_back)
        self._num_accepted -= num_tokens
        if self._num_accepted == 0:
            self._begun_at = -1 if self._begins_within else 0
        elif self._num_accepted < self._begun_at:
            self._begun_at = -1

    def forced(self, most: int) -> list[int]:
        """See `TokenMatcher`."""
        if self._begun_at < 0 or (self._distinct is not None and self._distinct.is_active):
            return []
        return self._matcher.compute_ff_tokens()[:most]

    @property
    def _may_open(self) -> bool:
        return self._num_accepted == 0


def first_line(message: str) -> str:
    """What a message of llguidance says first."""
    lines = [line for line in message.splitlines() if line.strip()]
    return lines[0][:_MAX_MESSAGE_CHARS] if lines else "unknown error"
