"""Fields that limit tokens, as limits of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pagemill.engine.token_limits import ReasoningBudget, TokenLimits
from pagemill.render.output_machine import REASONING
from pagemill.server.errors import ApiError
from pagemill.server.output_limits import (
    NO_LIMITS,
    OutputLimits,
    can_bound_reasoning,
    token_limits,
    wanted_limits,
)
from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.structured.grammar import Reasoning

VOCAB = 256


@dataclass
class Fields:
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = field(default_factory=list[str])
    thinking_token_budget: int | None = None


def limits_of(fields: Fields, begins: str | None = None) -> TokenLimits | None:
    return token_limits(wanted_limits(fields), FakeRenderer(MARKED), VOCAB, begins)


def test_fields_that_limit_nothing() -> None:
    for fields in (Fields(), Fields(thinking_token_budget=-1)):
        assert wanted_limits(fields) is NO_LIMITS and limits_of(fields) is None


def test_tokens_and_words() -> None:
    limits = limits_of(Fields([9, 3, 9], ["ab", " ab", "c", " "]))
    rows = ((97, 98), (32, 97, 98), (99,), (32, 99), (32,), (32, 32))
    assert limits == TokenLimits((3, 9), rows)


@pytest.mark.parametrize("begins", [None, REASONING])
def test_a_budget_of_reasoning(begins: str | None) -> None:
    limits = limits_of(Fields(thinking_token_budget=0), begins)
    reasoning = Reasoning((0xF8,), (0xF9,), begins == REASONING)
    assert limits == TokenLimits(budget=ReasoningBudget(reasoning, 0))


def test_refusals() -> None:
    plain = FakeRenderer()
    assert not can_bound_reasoning(plain) and can_bound_reasoning(FakeRenderer(MARKED))
    for limits, param in (
        (OutputLimits((VOCAB,)), "allowed_token_ids"),
        (OutputLimits(max_reasoning_tokens=5), "thinking_token_budget"),
    ):
        with pytest.raises(ApiError) as raised:
            token_limits(limits, plain, VOCAB, None)
        assert raised.value.param == param
