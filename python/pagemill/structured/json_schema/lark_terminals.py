"""Expressions as terminals of Lark that match JSON strings.

Each text has one spelling: what must be escaped is, by one letter if there is one, else in lower
case hexadecimal digits. So the complement of a text's spelling is that of other texts.
"""

from __future__ import annotations

import functools

from pagemill.structured.json_schema.expressions import (
    ANY_CHAR,
    BEGIN,
    END,
    MAX_CHAR,
    Both,
    Chars,
    Concatenation,
    Either,
    Expression,
    Not,
    Repeat,
    chars,
    intersection,
)

_PLAIN = chars([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, MAX_CHAR)])
_LETTERS = {0x22: '"', 0x5C: r"\\", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t"}


def terminal(given: Expression) -> str:
    """`given` as the body of a terminal."""
    pattern = _pattern(given)
    if pattern is not None:
        return f"/{pattern}/"
    match given:
        case Concatenation(parts):
            return " ".join(map(_inner, parts))
        case Either(options):
            return " | ".join(map(_inner, options))
        case Both(parts):
            return " & ".join(map(_inner, parts))
        case Not(part):
            return f"~{_inner(part)}"
        case Repeat(part, least, most):
            return f"{_inner(part)}{_count(least, most)}"
        case Chars():
            raise AssertionError(given)


def _inner(given: Expression) -> str:
    return f"({terminal(given)})"


def _pattern(given: Expression) -> str | None:
    """`given` as a plain regular expression, if it is one."""
    match given:
        case Chars():
            return _chars(given)
        case Concatenation(parts):
            found = [_pattern(part) for part in parts]
            kept = [each for each in found if each is not None]
            return "".join(kept) if len(kept) == len(parts) else None
        case Either(options):
            found = [_pattern(option) for option in options]
            kept = [each for each in found if each is not None]
            return f"(?:{'|'.join(kept)})" if len(kept) == len(options) else None
        case Repeat(part, least, most):
            inner = _pattern(part)
            return None if inner is None else f"(?:{inner}){_count(least, most)}"
        case Both() | Not():
            return None


def _count(least: int, most: int | None) -> str:
    if (least, most) == (0, None):
        return "*"
    if (least, most) == (0, 1):
        return "?"
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


@functools.lru_cache(maxsize=4096)
def _chars(given: Chars) -> str:
    if given.ranges in (((BEGIN, BEGIN),), ((END, END),)):
        return '"'
    if not given.ranges:
        return r"[^\x{0}-\x{10ffff}]"
    plain = intersection(given, _PLAIN)
    options = [_class(plain)] if plain.ranges else []
    if given != plain:
        options += _escapes(given)
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _class(given: Chars) -> str:
    if len(given.ranges) == 1 and given.ranges[0][0] == given.ranges[0][1]:
        return _char(given.ranges[0][0])
    if given == _PLAIN:
        return r'[^"\\\x00-\x1f]'
    return f"[{''.join(_range(*each) for each in given.ranges)}]"


def _range(low: int, high: int) -> str:
    return _char(low) if low == high else f"{_char(low)}-{_char(high)}"


def _char(code: int) -> str:
    text = chr(code)
    return text if text.isascii() and text.isalnum() else f"\\x{{{code:x}}}"


def _escapes(given: Chars) -> list[str]:
    """The escaped spellings of characters that must be."""
    codes = [
        code
        for low, high in intersection(given, ANY_CHAR).ranges
        for code in (
            *range(low, min(high, 0x1F) + 1),
            *(c for c in (0x22, 0x5C) if low <= c <= high),
        )
    ]
    letters = [_LETTERS[code] for code in codes if code in _LETTERS]
    digits = [f"{code:02x}" for code in codes if code not in _LETTERS]
    found = [rf"\\[{''.join(letters)}]"] if letters else []
    if digits:
        ones, twos = ("".join(d[1] for d in digits if d[0] == lead) for lead in "01")
        halves = [f"{lead}[{ends}]" for lead, ends in (("0", ones), ("1", twos)) if ends]
        found.append(rf"\\u00(?:{'|'.join(halves)})")
    return found
