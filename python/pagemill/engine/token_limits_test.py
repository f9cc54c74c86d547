"""Limits of tokens: masks and acceptance agree, and going back is as if nothing had been."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pagemill.engine.token_limits import LimitedMatcherFactory, ReasoningBudget, TokenLimits
from pagemill.engine.token_matcher import TokenMatcher
from pagemill.structured.grammar import Reasoning

VOCAB = 100
OPENER, CLOSER, OTHER_CLOSER = 7, 8, 9


class Even:
    """Even tokens only."""

    def __init__(self) -> None:
        self.num_accepted = 0

    def fill_mask(self, mask: np.ndarray) -> None:
        mask.fill(0x55555555)

    def accept(self, token_id: int) -> bool:
        self.num_accepted += token_id % 2 == 0
        return token_id % 2 == 0

    def rollback(self, num_tokens: int) -> None:
        self.num_accepted -= num_tokens

    def forced(self, most: int) -> list[int]:
        return [2, 4, 6][:most]


def allowed(matcher: TokenMatcher) -> set[int]:
    mask = np.random.default_rng().integers(0, 2**32, -(-VOCAB // 32), np.uint32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits[:VOCAB]).tolist())


def budget(begins_within: bool, max_tokens: int) -> ReasoningBudget:
    reasoning = Reasoning((OPENER,), (CLOSER, OTHER_CLOSER), begins_within)
    return ReasoningBudget(reasoning, max_tokens)


def test_allowed_tokens() -> None:
    matcher = LimitedMatcherFactory(TokenLimits((3, 64, 99)), None)()
    assert allowed(matcher) == {3, 64, 99}
    assert matcher.accept(64) and not matcher.accept(65)
    assert allowed(matcher) == {3, 64, 99}


def test_banned_rows() -> None:
    limits = TokenLimits(banned=((5,), (1, 2, 3), (2, 2), (1, 2, 4)))
    matcher = LimitedMatcherFactory(limits, None)()
    everything = set(range(VOCAB)) - {5}
    assert allowed(matcher) == everything and not matcher.accept(5)
    assert matcher.accept(1) and allowed(matcher) == everything
    assert matcher.accept(2) and allowed(matcher) == everything - {2, 3, 4}
    assert not matcher.accept(3) and not matcher.accept(4) and not matcher.accept(2)
    assert matcher.accept(1)
    assert allowed(matcher) == everything


def test_limits_and_another_matcher() -> None:
    factory = LimitedMatcherFactory(TokenLimits((3, 4, 6, 8), ((4, 6),)), Even)
    matcher = factory()
    assert allowed(matcher) == {4, 6, 8}
    assert not matcher.accept(3) and not matcher.accept(2)
    assert matcher.accept(4) and allowed(matcher) == {4, 8}
    matcher.rollback(1)
    assert allowed(matcher) == {4, 6, 8}
    assert matcher.forced(2) == [2, 4]  # a guess, which masks correct


@pytest.mark.parametrize("begins_within", [False, True])
def test_a_budget_of_reasoning(begins_within: bool) -> None:
    matcher = LimitedMatcherFactory(TokenLimits(budget=budget(begins_within, 2)), None)()
    everything = set(range(VOCAB))
    if not begins_within:
        assert matcher.accept(30) and matcher.accept(OPENER)
    for token in (OPENER, 31):  # an opener within reasoning is a token of it
        assert allowed(matcher) == everything and matcher.accept(token)
    assert allowed(matcher) == {CLOSER, OTHER_CLOSER} and not matcher.accept(32)
    assert matcher.accept(OTHER_CLOSER)
    assert allowed(matcher) == everything and matcher.accept(33)
    assert matcher.accept(OPENER)  # what was spent stays spent
    assert allowed(matcher) == {CLOSER, OTHER_CLOSER}


def test_reasoning_that_ends_by_itself_and_a_budget_of_nothing() -> None:
    matcher = LimitedMatcherFactory(TokenLimits(budget=budget(True, 5)), None)()
    assert matcher.accept(1) and matcher.accept(CLOSER)
    for _ in range(9):
        assert matcher.accept(1)
    matcher = LimitedMatcherFactory(TokenLimits(budget=budget(True, 0)), None)()
    assert allowed(matcher) == {CLOSER, OTHER_CLOSER}


def test_masks_and_acceptance_agree_however_one_goes_back() -> None:
    rng = random.Random(3)
    limits = TokenLimits(
        tuple(range(1, 12)), ((1,), (2, 3), (4, 4, 4), (5, 2, 3, 6)), budget(False, 4)
    )
    factory = LimitedMatcherFactory(limits, None)
    for _ in range(30):
        matcher, tokens = factory(), list[int]()
        for _ in range(60):
            masks = allowed(matcher)
            token = rng.randrange(12)
            assert matcher.accept(token) == (token in masks)
            if token in masks:
                tokens.append(token)
            back = rng.choice([0, 0, 0, min(len(tokens), rng.randrange(5))])
            matcher.rollback(back)
            del tokens[len(tokens) - back :]
            again = factory()
            assert all(map(again.accept, tokens)) and allowed(again) == allowed(matcher)
