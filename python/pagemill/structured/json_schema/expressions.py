"""Regular expressions over characters, with intersection and complement.

A text is framed: it is matched between the characters `BEGIN` and `END`. So an anchor is the frame
itself, and as the quotes around a JSON string are frames too, one expression says a text and,
written by `lark_terminals.py`, how JSON spells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagemill.structured.json_schema.errors import Budget

BEGIN, END = -1, -3
MAX_CHAR = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]
_MAX_MEMO = 20_000


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of sorted ranges that do not touch; none matches nothing."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Parts, one behind the other; none is the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of two or more options."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """What matches all of two or more parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """What does not match."""

    part: Expression


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times; None is any number."""

    part: Expression
    least: int
    most: int | None


Expression = Chars | Concatenation | Either | Both | Not | Repeat

NOTHING = Chars(())
EMPTY = Concatenation(())
BEGIN_CHAR = Chars(((BEGIN, BEGIN),))
END_CHAR = Chars(((END, END),))
ANY_CHAR = Chars(((0, 0xD7FF), (0xE000, MAX_CHAR)))  # no surrogates: they are no characters
ANY_TEXT = Repeat(ANY_CHAR, 0, None)
"""Unframed."""


def chars(ranges: Iterable[tuple[int, int]]) -> Chars:
    """Sorts and joins ranges."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        elif low <= high:
            joined.append((low, high))
    return Chars(tuple(joined))


def complement(given: Chars) -> Chars:
    """All other characters."""
    found: list[tuple[int, int]] = []
    at = 0
    for low, high in given.ranges:
        found.append((at, low - 1))
        at = high + 1
    found.append((at, MAX_CHAR))
    return intersection(chars(each for each in found if each[0] <= each[1]), ANY_CHAR)


def intersection(left: Chars, right: Chars) -> Chars:
    """Characters that are in both."""
    found: list[tuple[int, int]] = []
    first, second = list(left.ranges), list(right.ranges)
    at, other = 0, 0
    while at < len(first) and other < len(second):
        low = max(first[at][0], second[other][0])
        high = min(first[at][1], second[other][1])
        if low <= high:
            found.append((low, high))
        if first[at][1] < second[other][1]:
            at += 1
        else:
            other += 1
    return Chars(tuple(found))


def framed(inner: Expression) -> Expression:
    """`inner`, as all of a text."""
    return sequence((BEGIN_CHAR, inner, END_CHAR))


def has_endless_end(given: Expression) -> bool:
    """True if each framed text, and each beginning of one, begins infinitely many of them."""
    match given:
        case Concatenation((*_, Repeat(Chars(), _, None), last)):
            return last == END_CHAR
        case Either(options):
            return all(map(has_endless_end, options))
        case _:
            return False


def sequence(parts: Iterable[Expression]) -> Expression:
    """Parts in a row, flat."""
    flat: list[Expression] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Concatenation) else (part,)
    return flat[0] if len(flat) == 1 else Concatenation(tuple(flat))


def either(options: Iterable[Expression]) -> Expression:
    """One of the options, of which there may be none."""
    flat: dict[Expression, None] = {}
    for option in options:
        inner = option.options if isinstance(option, Either) else (option,)
        flat |= dict.fromkeys(each for each in inner if each != NOTHING)
    kept = tuple(flat)
    return NOTHING if not kept else kept[0] if len(kept) == 1 else Either(kept)


def both(parts: Iterable[Expression]) -> Expression:
    """All of the parts, at least one."""
    flat: dict[Expression, None] = {}
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat |= dict.fromkeys(part.parts if isinstance(part, Both) else (part,))
    kept = tuple(flat)
    return kept[0] if len(kept) == 1 else Both(kept)


def repeat(part: Expression, least: int, most: int | None) -> Expression:
    """`part` again and again."""
    if most == 0 or part == EMPTY:
        return EMPTY
    if part == NOTHING:
        return EMPTY if least == 0 else NOTHING
    return part if least == most == 1 else Repeat(part, least, most)


class Matcher:
    """Matches texts in time that grows with their length only: by derivatives, never back."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._derived: dict[tuple[Expression, int], Expression] = {}

    def matches(self, expression: Expression, text: str) -> bool:
        """Whether `expression`, framed, matches all of `text`.

        Raises:
            SchemaError: it takes too long.
        """
        for char in (BEGIN, *map(ord, text), END):
            expression = self._derivative(expression, char)
            if expression == NOTHING:
                return False
        return may_be_empty(expression)

    def _derivative(self, given: Expression, char: int) -> Expression:
        """What has to follow `char`."""
        if isinstance(given, Chars):
            return EMPTY if any(low <= char <= high for low, high in given.ranges) else NOTHING
        key = (given, char)
        found = self._derived.get(key)
        if found is None:
            self._budget.spend()
            if len(self._derived) > _MAX_MEMO:
                self._derived.clear()
            found = self._derived[key] = self._derive(given, char)
        return found

    def _derive(self, given: Expression, char: int) -> Expression:
        match given:
            case Concatenation(parts):
                return self._derive_sequence(parts, char)
            case Either(options):
                return either(self._derivative(each, char) for each in options)
            case Both(parts):
                return both(self._derivative(each, char) for each in parts)
            case Not(part):
                return Not(self._derivative(part, char))
            case Repeat(part, least, most):
                rest = repeat(part, max(least - 1, 0), None if most is None else most - 1)
                return sequence((self._derivative(part, char), rest))
            case Chars():
                return NOTHING

    def _derive_sequence(self, parts: Sequence[Expression], char: int) -> Expression:
        options: list[Expression] = []
        for index, part in enumerate(parts):
            options.append(sequence((self._derivative(part, char), *parts[index + 1 :])))
            if not may_be_empty(part):
                break
        return either(options)


def may_be_empty(given: Expression) -> bool:
    """Whether it matches the empty text."""
    match given:
        case Chars():
            return False
        case Concatenation(parts) | Both(parts):
            return all(map(may_be_empty, parts))
        case Either(options):
            return any(map(may_be_empty, options))
        case Not(part):
            return not may_be_empty(part)
        case Repeat(part, least, _):
            return least == 0 or may_be_empty(part)
