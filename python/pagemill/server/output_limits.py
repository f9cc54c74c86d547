"""What a request says of tokens that its outputs may not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pagemill.engine.token_limits import ReasoningBudget, TokenLimits
from pagemill.server.errors import bad_request
from pagemill.server.rendering import Renderer
from pagemill.structured.grammar import Reasoning

_BUDGET = "thinking_token_budget"


class LimitFields(Protocol):
    """The fields, of either generating route."""

    @property
    def allowed_token_ids(self) -> list[int] | None: ...
    @property
    def bad_words(self) -> list[str]: ...
    @property
    def thinking_token_budget(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Limits in the words of a request. `max_reasoning_tokens` None: reasoning has no bound."""

    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    max_reasoning_tokens: int | None = None


NO_LIMITS = OutputLimits()


def wanted_limits(fields: LimitFields) -> OutputLimits:
    """What the request says."""
    budget = fields.thinking_token_budget
    if not (fields.allowed_token_ids or fields.bad_words or budget not in (None, -1)):
        return NO_LIMITS
    allowed = tuple(sorted(set(fields.allowed_token_ids or ())))
    return OutputLimits(allowed, tuple(fields.bad_words), None if budget == -1 else budget)


def can_bound_reasoning(renderer: Renderer) -> bool:
    """Whether the model takes `thinking_token_budget`."""
    tokens = renderer.formats.reasoning_tokens(None)
    return tokens is not None and bool(tokens.closers)


def token_limits(
    limits: OutputLimits, renderer: Renderer, vocab_size: int, begins: str | None
) -> TokenLimits | None:
    """`limits` as tokens.

    Args:
        limits: the request's.
        renderer: the model's.
        vocab_size: of its logits.
        begins: the state of the output's format in which outputs begin, if it is known.

    Raises:
        ApiError: 400 naming the field.
    """
    if limits is NO_LIMITS:
        return None
    if limits.allowed_token_ids and limits.allowed_token_ids[-1] >= vocab_size:
        raise bad_request(
            f"`allowed_token_ids` has {limits.allowed_token_ids[-1]}; the vocabulary has"
            f" {vocab_size} tokens.",
            "allowed_token_ids",
        )
    budget = None
    if limits.max_reasoning_tokens is not None:
        budget = ReasoningBudget(_reasoning(renderer, begins), limits.max_reasoning_tokens)
    if limits.bad_words and not renderer.has_text:
        raise bad_request(
            "`bad_words` are text, and no tokenizer is loaded (--skip-tokenizer-init).", "bad_words"
        )
    return TokenLimits(limits.allowed_token_ids, _rows(limits.bad_words, renderer), budget)


def _rows(bad_words: tuple[str, ...], renderer: Renderer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word, as it is written after a blank and elsewhere."""
    rows: dict[tuple[int, ...], None] = {}
    for word in bad_words:
        bare = word.lstrip() or word
        for text in (bare, f" {bare}"):
            row = tuple(renderer.encode(text, add_special_tokens=False))
            if row:
                rows[row] = None
    return tuple(rows)


def _reasoning(renderer: Renderer, begins: str | None) -> Reasoning:
    tokens = renderer.formats.reasoning_tokens(begins)
    if tokens is None or not tokens.closers:
        raise bad_request(
            f"`{_BUDGET}` cannot be used with this model: it does not reason, or the end of its"
            " reasoning is not one token.",
            _BUDGET,
        )
    return Reasoning(*tokens)
