"""The syntax of regular expressions that `patterns` matches: a subset of Python's `re`.

Literals, `.`, classes, `\\d \\w \\s \\D \\W \\S`, groups, `|`, `* + ? {m} {m,} {m,n}` (lazy or not)
and the anchors `^` and `$`. Look-around, references and flags are refused.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

from pagemill.quantization.section import QuantizationError

_MAX_CHARS = 1000
_MAX_REPETITIONS = 1000
_MAX_DEPTH = 20

_WORD = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPES = {
    "d": frozenset(string.digits),
    "w": _WORD,
    "s": frozenset(string.whitespace),
}


class PatternError(QuantizationError):
    """A pattern that is not supported; the message says what is."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: a `member`, or any that is none if `negated`."""

    members: frozenset[str]
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        return (char in self.members) != self.negated


@dataclass(frozen=True, slots=True)
class Anchor:
    """The beginning of the text, or its end."""

    at_end: bool


@dataclass(frozen=True, slots=True)
class Concatenation:
    """One node after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these nodes."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`inner`, `least` to `most` times; `most` None: any number of times."""

    inner: Node
    least: int
    most: int | None


Node = Chars | Anchor | Concatenation | Choice | Repeat


def parse(pattern: str) -> Node:
    """The syntax tree of `pattern`.

    Raises:
        PatternError: it is not valid, too long, or uses what is not supported.
    """
    if len(pattern) > _MAX_CHARS:
        raise PatternError(f"patterns of at most {_MAX_CHARS} characters")
    parser = _Parser(pattern)
    node = parser.choice(0)
    if not parser.at_end:
        raise PatternError("balanced parentheses")
    return node


class _Parser:
    """Recursive descent; `_at` is the next character."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> bool:
        """Skips `expected` if it comes next."""
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _next(self) -> str:
        if self.at_end:
            raise PatternError("complete patterns")
        self._at += 1
        return self._text[self._at - 1]

    def choice(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise PatternError(f"groups in at most {_MAX_DEPTH} others")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.at_end and self._peek() not in "|)":
            parts.append(self._repeated(self._atom(depth)))
        return Concatenation(tuple(parts))

    def _repeated(self, atom: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        least, most = bounds
        if isinstance(atom, Anchor) or max(least, most or 0) > _MAX_REPETITIONS:
            raise PatternError(f"up to {_MAX_REPETITIONS} repetitions of characters and groups")
        if most is not None and most < least:
            raise PatternError("repetitions whose bounds ascend")
        self._take("?")  # a lazy repetition matches the same texts
        if self._peek() in ("+", "*", "?") or self._bounds() is not None:
            raise PatternError("one repetition after another in parentheses")
        return Repeat(atom, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often what precedes may occur; None if no repetition comes next."""
        for char, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(char):
                return least, most
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not all(part == "" or (part.isascii() and part.isdigit()) for part in (low, high)):
            return None  # a brace that is a literal, as in `re`
        if not low and not comma:
            return None
        self._at = end + 1
        least = int(low or 0)
        return least, (int(high) if high else None) if comma else least

    def _atom(self, depth: int) -> Node:
        char = self._next()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise PatternError("repetitions of something")
        if char in "^$":
            return Anchor(at_end=char == "$")
        return Chars(frozenset("\n"), negated=True) if char == "." else Chars(frozenset(char))

    def _group(self, depth: int) -> Node:
        if self._take("?") and not self._take(":"):
            raise PatternError("groups without look-around, names and flags")
        node = self.choice(depth + 1)
        if not self._take(")"):
            raise PatternError("balanced parentheses")
        return node

    def _escape(self) -> Chars:
        char = self._next()
        if char.lower() in _ESCAPES:
            return Chars(_ESCAPES[char.lower()], negated=char.isupper())
        if char.isalnum():
            raise PatternError(r"the escapes \d, \w, \s, \D, \W, \S and those of punctuation")
        return Chars(frozenset(char))

    def _class(self) -> Chars:
        negated = self._take("^")
        members: set[str] = set()
        first = True
        while first or not self._take("]"):
            low = self._member(members)
            first = False
            if low and self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._member(members)
                if not high or ord(high) < ord(low) or ord(high) > 127:
                    raise PatternError("ranges of ASCII characters")
                members.update(map(chr, range(ord(low), ord(high) + 1)))
        return Chars(frozenset(members), negated)

    def _member(self, members: set[str]) -> str:
        """Adds the next member of a class; it, if it is one character."""
        char = self._next()
        chars = Chars(frozenset(char)) if char != "\\" else self._escape()
        if chars.negated:
            raise PatternError(r"classes without \D, \W and \S")
        members.update(chars.members)
        return char if char != "\\" else next(iter(chars.members)) * (len(chars.members) == 1)
