"""Tokens that an output may not have, whatever its grammar says, and a bound on its reasoning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pagemill.engine.token_matcher import TokenMatcher, TokenMatcherFactory
from pagemill.structured.grammar import Reasoning

_ALL = 0xFFFFFFFF


class ReasoningBudget(msgspec.Struct, array_like=True, frozen=True):
    """After `max_tokens` of reasoning one of its closers comes; it has one at least."""

    reasoning: Reasoning
    max_tokens: int


class TokenLimits(msgspec.Struct, array_like=True, frozen=True):
    """Limits of one output. All tokens are below the vocabulary's size."""

    allowed: tuple[int, ...] = ()
    """The tokens that it may have; empty: all."""
    banned: tuple[tuple[int, ...], ...] = ()
    """What it may not have: tokens in a row, one at least."""
    budget: ReasoningBudget | None = None


class LimitedMatcherFactory:
    """Makes the matchers of outputs that have `limits`, and those of `inner` as well."""

    def __init__(self, limits: TokenLimits, inner: TokenMatcherFactory | None) -> None:
        self.limits = limits
        self.allowed = frozenset(limits.allowed)
        self.banned = frozenset(row[0] for row in limits.banned if len(row) == 1)
        self.banned_rows = [row for row in limits.banned if len(row) > 1]
        self._inner = inner
        self._mask = np.zeros(0, np.uint32)

    def __call__(self) -> LimitedMatcher:
        """See `TokenMatcherFactory`."""
        return LimitedMatcher(self, self._inner() if self._inner is not None else None)

    def mask(self, num_words: int) -> np.ndarray:
        """The tokens that may come anywhere."""
        if self._mask.size != num_words:
            mask = np.full(num_words, 0 if self.allowed else _ALL, np.uint32)
            _set(mask, self.allowed)
            for token in self.banned:
                _clear(mask, token)
            self._mask = mask
        return self._mask


class _Reasoned(NamedTuple):
    """How many tokens of reasoning an output has, and whether it is within reasoning."""

    num_tokens: int
    is_within: bool


class LimitedMatcher:
    """The state of one output. Implements `TokenMatcher`."""

    def __init__(self, factory: LimitedMatcherFactory, inner: TokenMatcher | None) -> None:
        self._factory = factory
        self._inner = inner
        self._tokens: list[int] = []
        self._budget = factory.limits.budget
        begins_within = self._budget is not None and self._budget.reasoning.begins_within
        self._reasoned = [_Reasoned(0, begins_within)]  # before each token, and now

    def fill_mask(self, mask: np.ndarray) -> None:
        """See `TokenMatcher`."""
        anywhere = self._factory.mask(mask.size)
        if self._inner is None:
            mask[:] = anywhere
        else:
            self._inner.fill_mask(mask)
            mask &= anywhere
        for row in self._factory.banned_rows:
            if self._would_end(row):
                _clear(mask, row[-1])
        if self._is_spent:
            mask.fill(0)
            _set(mask, self._closers)

    def accept(self, token_id: int) -> bool:
        """See `TokenMatcher`."""
        if not self._may_come(token_id):
            return False
        if self._inner is not None and not self._inner.accept(token_id):
            return False
        self._tokens.append(token_id)
        if self._budget is not None:
            self._reasoned.append(self._after(token_id, self._budget.reasoning))
        return True

    def rollback(self, num_tokens: int) -> None:
        """See `TokenMatcher`."""
        if num_tokens == 0:
            return
        if self._inner is not None:
            self._inner.rollback(num_tokens)
        del self._tokens[-num_tokens:]
        if self._budget is not None:
            del self._reasoned[-num_tokens:]

    def forced(self, most: int) -> Sequence[int]:
        """See `TokenMatcher`."""
        return self._inner.forced(most) if self._inner is not None else ()

    @property
    def _closers(self) -> tuple[int, ...]:
        return self._budget.reasoning.closers if self._budget is not None else ()

    @property
    def _is_spent(self) -> bool:
        count, is_within = self._reasoned[-1]
        return self._budget is not None and is_within and count >= self._budget.max_tokens

    def _after(self, token_id: int, reasoning: Reasoning) -> _Reasoned:
        count, is_within = self._reasoned[-1]
        if not is_within:
            return _Reasoned(count, token_id in reasoning.openers)
        if token_id in reasoning.closers:
            return _Reasoned(count, False)
        return _Reasoned(count + 1, True)

    def _may_come(self, token_id: int) -> bool:
        if self._is_spent:
            return token_id in self._closers
        factory = self._factory
        if token_id in factory.banned or (factory.allowed and token_id not in factory.allowed):
            return False
        return not any(row[-1] == token_id and self._would_end(row) for row in factory.banned_rows)

    def _would_end(self, row: tuple[int, ...]) -> bool:
        """Whether `row` would be there with its last token."""
        return tuple(self._tokens[1 - len(row) :]) == row[:-1]


def _set(mask: np.ndarray, tokens: Iterable[int]) -> None:
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)


def _clear(mask: np.ndarray, token: int) -> None:
    mask[token // 32] &= np.uint32(_ALL ^ (1 << token % 32))
