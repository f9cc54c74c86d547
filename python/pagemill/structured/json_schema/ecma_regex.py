"""Regular expressions of ECMAScript, as schemas have them, to `expressions`.

Also what other dialects write for the same: `(?P<name>`, `(?i)`, `\\A`, `\\z`, possessive
quantifiers. Lookarounds are translated where all that follows, or comes before, is known: not in
repetitions. References to groups and word boundaries cannot be translated.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.structured.json_schema.errors import UnwritableError
from pagemill.structured.json_schema.expressions import (
    ANY_CHAR,
    ANY_TEXT,
    BEGIN_CHAR,
    EMPTY,
    END_CHAR,
    NOTHING,
    Chars,
    Concatenation,
    Either,
    Expression,
    Not,
    both,
    chars,
    complement,
    either,
    intersection,
    may_be_empty,
    repeat,
    sequence,
)

_MAX_CHARS = 16_384
_MAX_DEPTH = 64
_MAX_TIMES = 65_536
_MAX_FOLDED = 4096
"""Larger sets are not extended to the other case of their letters."""
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0, "a": 7, "e": 27}
_DIGIT = chars([(48, 57)])
_WORD = chars([(48, 57), (65, 90), (95, 95), (97, 122)])
_BLANK_TEXT = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
_BLANK = chars([*((ord(each), ord(each)) for each in _BLANK_TEXT), (0x2000, 0x200A)])
_LINE_END = chars([(10, 10), (13, 13), (0x2028, 0x2029)])
_CLASSES = {
    "d": _DIGIT,
    "D": complement(_DIGIT),
    "s": _BLANK,
    "S": complement(_BLANK),
    "w": _WORD,
    "W": complement(_WORD),
}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})[?+]?")
_GROUP = re.compile(r"\?(?::|P?<[A-Za-z_$][\w$]*>|(<?[=!])|([a-z]+):)")
_FLAGS = re.compile(r"\(\?([a-z]+)\)")
_LONG_CATEGORIES = {
    "Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Titlecase_Letter": "Lt",
    "Mark": "M", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Punctuation": "P",
    "punct": "P", "Symbol": "S", "Separator": "Z", "Other": "C", "Control": "Cc", "cntrl": "Cc",
    "Alphabetic": "L", "Alpha": "L",
}  # fmt: skip


class _Begin:
    """`^`."""


class _End:
    """`$`."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """`\\b`, or `\\B`."""

    is_negative: bool


@dataclass(frozen=True, slots=True)
class _Look:
    """A lookaround: `part` does, or does not, match what follows or comes before."""

    part: _Tree
    is_ahead: bool
    is_negative: bool


@dataclass(frozen=True, slots=True)
class _Group:
    """Options, each of parts in a row."""

    options: tuple[tuple[_Tree, ...], ...]


@dataclass(frozen=True, slots=True)
class _Times:
    """A part that is repeated."""

    part: _Tree
    least: int
    most: int | None


_Tree = Chars | _Begin | _End | _Boundary | _Look | _Group | _Times
_BEGIN, _END = _Begin(), _End()


def parse(pattern: str) -> Expression:
    """Framed texts in which `pattern` matches somewhere.

    Raises:
        SchemaError: it is no expression, or one that cannot be translated, or too long.
    """
    if len(pattern) > _MAX_CHARS:
        raise UnwritableError(f"a pattern has {len(pattern)} characters; {_MAX_CHARS} are allowed")
    return _parsed(pattern)


@functools.lru_cache(maxsize=1024)
def _parsed(pattern: str) -> Expression:
    flags = _FLAGS.match(pattern)
    parser = _Parser(pattern, flags.end() if flags else 0, flags[1] if flags else "")
    try:
        tree = parser.group(0)
    except IndexError:
        raise parser.error("it ends too early") from None
    if parser.at != len(pattern):
        raise parser.error("a parenthesis is not opened")
    return _Translation(parser).found(tree)


class _Translation:
    """Writes a tree as what has to be in a text, from its end to its beginning: what follows a part
    is known when it is written, so that lookarounds and anchors are conditions on that."""

    def __init__(self, parser: _Parser) -> None:
        self._parser = parser

    def found(self, tree: _Group) -> Expression:
        """Framed texts in which `tree` matches somewhere."""
        rest = sequence((ANY_TEXT, END_CHAR))
        if not _has(tree, _BEGIN):
            return self._row((tree,), rest, before=sequence((BEGIN_CHAR, ANY_TEXT)), is_first=False)
        at_once = self._row((tree,), rest, before=BEGIN_CHAR, is_first=True)
        behind = sequence((BEGIN_CHAR, ANY_CHAR, ANY_TEXT))
        return either((at_once, self._row((tree,), rest, before=behind, is_first=False)))

    def _row(
        self, parts: Sequence[_Tree], rest: Expression, *, before: Expression, is_first: bool | None
    ) -> Expression:
        """`before`, `parts` and `rest`, one behind the other. `is_first`: the parts begin where the
        text does; None: that depends on the text."""
        for index, part in enumerate(parts):
            behind = parts[index + 1 :]
            match part:
                case _Begin():
                    if is_first is None:
                        raise self._parser.error("what comes before an anchor is not known")
                    if not is_first:
                        return NOTHING
                case _Look(inner, False, is_negative):
                    before = self._behind(before, inner, is_negative=is_negative)
                case _Boundary(is_negative):
                    return self._boundary(before, behind, rest, is_negative=is_negative)
                case _ if self._is_plain(part):
                    plain = self._plain(part)
                    if plain != EMPTY and is_first is not False:
                        is_first = None if may_be_empty(plain) else False
                    before = sequence((before, plain))
                case _:
                    stays_first = is_first if isinstance(part, _Look) else is_first and None
                    after = self._row(behind, rest, before=EMPTY, is_first=stays_first)
                    return self._part(part, after, before=before, is_first=is_first)
        return sequence((before, rest))

    def _part(
        self, part: _Tree, rest: Expression, *, before: Expression, is_first: bool | None
    ) -> Expression:
        """`before`, a part with conditions in it, and `rest`."""
        match part:
            case _End():
                is_any = rest == sequence((ANY_TEXT, END_CHAR))
                return sequence((before, END_CHAR if is_any else both((rest, END_CHAR))))
            case _Look(inner, _, is_negative):
                end = sequence((ANY_TEXT, END_CHAR))
                ahead = self._row((inner,), end, before=EMPTY, is_first=is_first)
                return sequence((before, both((rest, Not(ahead) if is_negative else ahead))))
            case _Group(options):
                return either(
                    self._row(each, rest, before=before, is_first=is_first) for each in options
                )
            case _Times(inner, least, most):
                if most == 1:
                    once = self._row((inner,), rest, before=before, is_first=is_first)
                    return once if least else either((once, sequence((before, rest))))
                return sequence((before, self._times(inner, least, most, rest)))
            case _:
                raise AssertionError(part)

    def _times(self, inner: _Tree, least: int, most: int | None, rest: Expression) -> Expression:
        match inner:
            case _Group(((_Look(looked, True, True), Chars() as char),)) if rest == END_CHAR:
                # Nowhere in the text may `looked` begin.
                end = sequence((ANY_TEXT, END_CHAR))
                begins = self._row((looked,), end, before=EMPTY, is_first=False)
                texts = sequence((repeat(char, least, most), END_CHAR))
                return both((texts, Not(sequence((ANY_TEXT, begins)))))
            case _:
                raise self._parser.error("an anchor or a lookaround is repeated")

    def _behind(self, before: Expression, inner: _Tree, *, is_negative: bool) -> Expression:
        """`before`, whose last character is looked at."""
        if sequence((before,)) == BEGIN_CHAR or (
            isinstance(before, Concatenation) and before.parts[:1] == (BEGIN_CHAR,)
        ):
            later = sequence((BEGIN_CHAR, ANY_CHAR, ANY_TEXT))
            looked = either(
                (
                    self._row((inner,), EMPTY, before=BEGIN_CHAR, is_first=True),
                    self._row((inner,), EMPTY, before=later, is_first=False),
                )
            )
            return both((before, Not(looked) if is_negative else looked))
        looked = self._plain(inner)
        if _length(looked) != 1 or may_be_empty(before):
            raise self._parser.error("it looks behind further than a character")
        last = sequence((repeat(either((ANY_CHAR, BEGIN_CHAR)), 0, None), looked))
        return both((before, Not(last) if is_negative else last))

    def _boundary(
        self, before: Expression, parts: Sequence[_Tree], rest: Expression, *, is_negative: bool
    ) -> Expression:
        """Where a word begins or ends, or does not."""
        if may_be_empty(before):
            raise self._parser.error("what comes before a boundary is not known")
        after = self._row(parts, rest, before=EMPTY, is_first=False)
        start = repeat(either((ANY_CHAR, BEGIN_CHAR)), 0, None)
        no_word = complement(_WORD)
        ends = [sequence((start, each)) for each in (_WORD, either((no_word, BEGIN_CHAR)))]
        tail = repeat(either((ANY_CHAR, END_CHAR)), 0, None)
        begins = [sequence((each, tail)) for each in (_WORD, either((no_word, END_CHAR)))]
        pairs = ((0, 0), (1, 1)) if is_negative else ((0, 1), (1, 0))
        return either(
            sequence((both((before, ends[one])), both((after, begins[other]))))
            for one, other in pairs
        )

    def _is_plain(self, tree: _Tree) -> bool:
        return not any(_has(tree, kind) for kind in (_BEGIN, _END, _Look, _Boundary))

    def _plain(self, tree: _Tree) -> Expression:
        """A tree without conditions."""
        match tree:
            case Chars():
                return tree
            case _Group(options):
                return either(sequence(map(self._plain, parts)) for parts in options)
            case _Times(part, least, most):
                return repeat(self._plain(part), least, most)
            case _:
                raise self._parser.error("a lookaround is within a lookaround")


def _has(tree: _Tree, kind: object) -> bool:
    """Whether `kind`, a part or a class of parts, is in `tree`."""
    if tree is kind or (isinstance(kind, type) and isinstance(tree, kind)):
        return True
    match tree:
        case _Group(options):
            return any(_has(part, kind) for parts in options for part in parts)
        case _Times(part, _, _) | _Look(part, _, _):
            return _has(part, kind)
        case _:
            return False


def _length(given: Expression) -> int | None:
    """How many characters it matches, if that is always the same."""
    match given:
        case Chars():
            return 1
        case Concatenation(parts):
            found = [_length(part) for part in parts]
            return sum(n for n in found if n is not None) if None not in found else None
        case Either(options):
            lengths = {_length(option) for option in options}
            return lengths.pop() if len(lengths) == 1 else None
        case _:
            return None


class _Parser:
    """Reads a pattern from `at` on."""

    def __init__(self, pattern: str, at: int, flags: str) -> None:
        self.at = at
        self._pattern = pattern
        self._ignores_case = "i" in flags
        self._any = ANY_CHAR if "s" in flags else complement(_LINE_END)
        if set(flags) - set("isu"):
            raise self.error(f"the flags {flags!r} are not known")

    def error(self, why: str) -> UnwritableError:
        """Why the pattern cannot be used."""
        return UnwritableError(f"the pattern {self._pattern[:80]!r} cannot be used: {why}")

    def group(self, depth: int) -> _Group:
        """Options up to the end, or to a parenthesis."""
        if depth > _MAX_DEPTH:
            raise self.error("it is nested too deeply")
        found: list[list[_Tree]] = [[]]
        while self.at < len(self._pattern) and self._pattern[self.at] != ")":
            if self._takes("|"):
                found.append([])
            else:
                found[-1].append(self._quantified(depth))
        return _Group(tuple(map(tuple, found)))

    def _takes(self, text: str) -> bool:
        taken = self._pattern.startswith(text, self.at)
        self.at += len(text) * taken
        return taken

    def _quantified(self, depth: int) -> _Tree:
        part = self._part(depth)
        quantifier = _QUANTIFIER.match(self._pattern, self.at)
        if quantifier is None:
            return part
        self.at = quantifier.end()
        least, most = _times(quantifier)
        if max(least, most or 0) > _MAX_TIMES or (most is not None and least > most):
            raise self.error(f"a repetition is of at most {_MAX_TIMES} times")
        return _Times(part, least, most)

    def _part(self, depth: int) -> _Tree:
        char = self._pattern[self.at]
        self.at += 1
        match char:
            case "(":
                return self._parenthesis(depth)
            case "[":
                return self._class()
            case "^":
                return _BEGIN
            case "$":
                return _END
            case ".":
                return self._any
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self.error("there is nothing to repeat")
            case _:
                return self._folded(_one(char))

    def _parenthesis(self, depth: int) -> _Tree:
        header = _GROUP.match(self._pattern, self.at)
        if header is None and self._takes("?"):
            raise self.error("a kind of group is not known")
        self.at = header.end() if header else self.at
        group = self.group(depth + 1)
        if not self._takes(")"):
            raise self.error("a parenthesis is not closed")
        if header is not None and header[1]:
            return _Look(group, is_ahead="<" not in header[1], is_negative="!" in header[1])
        return group

    def _escape(self) -> _Tree:
        char = self._pattern[self.at]
        if char in "kGKRX" or char in "123456789":
            raise self.error(f"`\\{char}` is not known")
        if char in "AZzbB":
            self.at += 1
            return {"A": _BEGIN, "Z": _END, "z": _END}.get(char, _Boundary(char == "B"))
        return self._folded(self._escaped_chars())

    def _escaped_chars(self) -> Chars:
        char = self._pattern[self.at]
        self.at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if char in "pP":
            return self._property(is_negative=char == "P")
        return _one(chr(self._escaped_code(char)))

    def _escaped_code(self, char: str) -> int:
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "c":
            self.at += 1
            return ord(self._pattern[self.at - 1]) % 32
        if char == "x":
            return self._code(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\}")
        if char == "u":
            code = self._code(r"([0-9A-Fa-f]{4})|\{([0-9A-Fa-f]{1,6})\}")
            if 0xD800 <= code <= 0xDBFF and self._takes("\\u"):
                low = self._code("([0-9A-Fa-f]{4})")
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00 & 0x3FF)
            return code
        return ord(char)

    def _code(self, pattern: str) -> int:
        found = re.compile(pattern).match(self._pattern, self.at)
        if found is None:
            raise self.error("an escape is no character")
        self.at = found.end()
        code = int(found[found.lastindex or 1], 16)
        if code > sys.maxunicode:
            raise self.error("an escape is no character")
        return code

    def _property(self, *, is_negative: bool) -> Chars:
        found = re.compile(r"\{(?:gc=|General_Category=)?(\w+)\}|([A-Z])").match(
            self._pattern, self.at
        )
        if found is None:
            raise self.error("a property is not known")
        self.at = found.end()
        name = found[1] or found[2]
        category = _LONG_CATEGORIES.get(name, name)
        if not re.fullmatch("[LMNPSZC][a-z]?", category):
            raise self.error(f"the property {name[:32]!r} is not known")
        known = _category(category)
        return complement(known) if is_negative else known

    def _class(self) -> Chars:
        is_negative = self._takes("^")
        ranges: list[tuple[int, int]] = []
        while not self._takes("]"):
            if self._takes("[:"):
                raise self.error("classes of POSIX are not known")
            low = self._class_chars()
            is_range = self._pattern[self.at] == "-" and self._pattern[self.at + 1] != "]"
            if not is_range:
                ranges += low.ranges
                continue
            self.at += 1
            high = self._class_chars()
            if not _is_one(low) or not _is_one(high):
                ranges += [*low.ranges, *high.ranges, (45, 45)]
            elif low.ranges[0][0] > high.ranges[0][0]:
                raise self.error("a range is empty")
            else:
                ranges.append((low.ranges[0][0], high.ranges[0][0]))
        found = self._folded(intersection(chars(ranges), ANY_CHAR))
        return complement(found) if is_negative else found

    def _class_chars(self) -> Chars:
        char = self._pattern[self.at]
        self.at += 1
        if char != "\\":
            return _one(char)
        if self._takes("b"):
            return _one("\b")
        return self._escaped_chars()

    def _folded(self, given: Chars) -> Chars:
        if (
            not self._ignores_case
            or sum(high - low + 1 for low, high in given.ranges) > _MAX_FOLDED
        ):
            return given
        every = [chr(code) for low, high in given.ranges for code in range(low, high + 1)]
        both_cases = "".join(
            each.lower() + each.upper() for each in every if len(each.upper()) == 1
        )
        return chars([*given.ranges, *((ord(each), ord(each)) for each in both_cases)])


def _one(char: str) -> Chars:
    return Chars(((ord(char), ord(char)),))


def _is_one(given: Chars) -> bool:
    return len(given.ranges) == 1 and given.ranges[0][0] == given.ranges[0][1]


def _times(quantifier: re.Match[str]) -> tuple[int, int | None]:
    if quantifier[1] is None:
        sign = quantifier[0][0]
        return int(sign == "+"), 1 if sign == "?" else None
    least = int(quantifier[1][:9])
    if quantifier[2] is None:
        return least, least
    return least, int(quantifier[3][:9]) if quantifier[3] else None


@functools.cache
def _category(name: str) -> Chars:
    """Characters whose category begins with `name`."""
    codes = (code for low, high in ANY_CHAR.ranges for code in range(low, high + 1))
    return chars((c, c) for c in codes if unicodedata.category(chr(c)).startswith(name))
