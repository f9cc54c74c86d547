"""Strings of shapes as expressions: which texts are among them, and how a grammar spells them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pagemill.structured.json_schema import expressions
from pagemill.structured.json_schema.ecma_regex import parse
from pagemill.structured.json_schema.errors import Budget, SchemaError
from pagemill.structured.json_schema.expressions import ANY_CHAR, ANY_TEXT, Expression, Not, framed
from pagemill.structured.json_schema.lark_terminals import terminal
from pagemill.structured.json_schema.shapes import Strings
from pagemill.structured.json_schema.spelling import json_text, lark_literal


class StringLanguage:
    """Knows strings of one schema; remembers what it found."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._matcher = expressions.Matcher(budget)
        self._is_empty: dict[str, bool] = {}
        self._terminals: dict[Strings, str | None] = {}

    def admits(self, strings: Strings, text: str) -> bool:
        """Whether `text` is among `strings`."""
        if strings.values is not None and text not in strings.values:
            return False
        most = len(text) if strings.most is None else strings.most
        return (
            strings.least <= len(text) <= most
            and text not in strings.excluded
            and all(self.matches(pattern, text) == sign for pattern, sign in strings.patterns)
        )

    def matches(self, pattern: str, text: str) -> bool:
        """Whether `pattern` matches somewhere in `text`."""
        return self._matcher.matches(parse(pattern), text)

    def values(self, strings: Strings) -> list[str] | None:
        """All of them, if they are listed."""
        if strings.values is None:
            return None
        return [v for v in strings.values if _is_text(v) and self.admits(strings, v)]

    def terminal(self, strings: Strings) -> str | None:
        """The body of a terminal of Lark; None if there are none."""
        if strings not in self._terminals:
            self._budget.spend(2)
            self._terminals[strings] = self._terminal(strings)
        return self._terminals[strings]

    def _terminal(self, strings: Strings) -> str | None:
        values = self.values(strings)
        if values is not None:
            return " | ".join(lark_literal(json_text(value)) for value in values) or None
        body = terminal(self._expression(strings))
        is_combined = len(strings.patterns) + bool(strings.most or strings.least) > 1
        if (is_combined or "&" in body) and self._has_nothing(body):
            return None
        if strings.excluded:
            listed = map(json_text, sorted(filter(_is_text, strings.excluded)))
            body = f"({body}) & ~({' | '.join(map(lark_literal, listed))})"
        return body

    def _expression(self, strings: Strings) -> Expression:
        parts = [
            parse(pattern) if sign else Not(parse(pattern))
            for pattern, sign in sorted(strings.patterns)
        ]
        if strings.least or strings.most is not None:
            inner = expressions.repeat(ANY_CHAR, strings.least, strings.most)
            parts.append(framed(inner))
        if not any(not isinstance(part, Not) for part in parts):
            parts.insert(0, framed(ANY_TEXT))
        return expressions.both(parts)

    def _has_nothing(self, body: str) -> bool:
        """Whether no string is in a terminal, as the compiler of grammars finds it."""
        found = self._is_empty.get(body)
        if found is None:
            self._budget.spend(50 + len(body) // 20)
            found = self._is_empty[body] = _matches_nothing(body)
        return found


def _is_text(value: str) -> bool:
    """Whether it has no lone surrogates, which no text in UTF-8 has."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


@functools.cache
def _byte_tokenizer() -> Any:
    import llguidance

    return llguidance.LLTokenizer("byte")


def _matches_nothing(body: str) -> bool:
    import llguidance

    tokenizer = _byte_tokenizer()
    matcher = llguidance.LLMatcher(tokenizer, f"start: T\nT: {body}\n", log_level=0)
    if matcher.is_error():
        raise SchemaError(f"a string cannot be described: {matcher.get_error().splitlines()[0]}")
    mask = np.frombuffer(matcher.compute_bitmask(), np.uint32).copy()
    for end in tokenizer.eos_tokens:
        mask[end // 32] &= ~np.uint32(1 << end % 32)
    return not mask.any()
