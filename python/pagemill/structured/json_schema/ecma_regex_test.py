"""Patterns: what they match, beside Python's `re`."""

from __future__ import annotations

import re

import pytest

from pagemill.structured.json_schema.ecma_regex import parse
from pagemill.structured.json_schema.errors import Budget, SchemaError
from pagemill.structured.json_schema.expressions import Matcher

_TEXTS = (
    *("", "a", "ab", "aab", "b", "foo", "foob", "bar", "-a-", "a-a", "123-x", 'x"\\', "ABC", "xa"),
    *("a@b.cc", "bc", "a\nb", "\x00a", "axb", "\t", "foo bar", "xfoo", "a--a", "b-a", "aa-b@c"),
)
_PATTERNS = (
    *("^a+$", "a", "^$", "", "^(a|b$)", "(^a|b)c", r"^\d{3}-\D$", r'[^"]"\\', "(?i)^abc$", "a|^$"),
    *("^(?!foo)[a-z]+$", "^(?!-)[a-z-]{1,63}(?<!-)$", "a(?=b)", "(?=.*x)a", r"[\s\S]", r"\u00e9|x"),
    *(
        r"^[\w.-]+@[\w-]+\.\w+$",
        r"a\b",
        r"\bfoo\b",
        r"\Ba",
        "^^a",
        "^(^a|b)$",
        "^(a(b$)?)",
        "$",
        "^",
    ),
    *(
        "^((?!oo).)*$",
        "^(?:(?!-)[a-z-]{1,3}(?<!-)@)?[a-z.]+$",
        "a$|^b",
        "^a*$",
        "(a$)?b",
        "(?<=a)b",
    ),
    *("^([a-z](?:(?!.*--)[a-z-]*[a-z])?)$", "(?<!a)b", "(?<=ba)b", "(?<!aa)b", "a{2}?", r"[\]a-]"),
)


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_it_matches_as_python_does(pattern: str) -> None:
    matcher = Matcher(Budget(100_000))
    found = [text for text in _TEXTS if matcher.matches(parse(pattern), text)]
    assert found == [text for text in _TEXTS if re.search(pattern, text)]


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\p{Lu}\P{L}$", ["É1"], ["é1", "ÉÉ"]),
        (r"^\s$", ["\ufeff", "\u2028"], ["\x1c"]),
        (r"^\d$", ["7"], ["\u0667"]),
        (r"^\uD83D\uDC32$", ["\U0001f432"], ["x"]),
        (r"^.$", ["\x85"], ["\n", "\u2028"]),
        (r"^[\d-x]$", ["-", "x"], ["e"]),
    ],
)
def test_the_dialect_is_ecmascript(pattern: str, good: list[str], bad: list[str]) -> None:
    matcher = Matcher(Budget(100_000))
    assert all(matcher.matches(parse(pattern), text) for text in good)
    assert not any(matcher.matches(parse(pattern), text) for text in bad)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        "a)",
        "*",
        "[b-a]",
        r"(a)\1",
        "(?=a)*",
        r"\p{Nope}",
        "a{9999999}",
        "(" * 100,
        "x" * 20_000,
    ],
)
def test_what_cannot_be_used(pattern: str) -> None:
    with pytest.raises(SchemaError):
        parse(pattern)


def test_time_is_bounded() -> None:
    matcher = Matcher(Budget(100_000))
    assert not matcher.matches(parse("^(a+)+$"), "a" * 200 + "b")
    with pytest.raises(SchemaError, match="too many parts"):
        Matcher(Budget(10)).matches(parse("^(a|b|ab){1,500}c$"), "ab" * 500)
