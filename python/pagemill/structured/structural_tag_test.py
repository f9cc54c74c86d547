"""Structural tags: what they admit, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import GrammarError
from pagemill.structured.structural_tag import structural_tag
from pagemill.structured.testing.byte_tokenizer import (
    EOS,
    OPENER,
    OTHER_EOS,
    THINK_END,
    admits,
    allowed,
    byte_vocabulary,
)

ENDS = (EOS, OTHER_EOS)
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
WORD = {"type": "regex", "pattern": "[a-z]+"}
TEXT = {"type": "any_text"}


def tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def const(text: str) -> dict[str, Any]:
    return {"type": "const_string", "value": text}


TAGS = [tag("<f=a>", NUMBER, "</f>"), tag("<f=b>", WORD, "</f>"), tag("<g>", TEXT, ["</g>", "."])]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f=", "<g>"], "tags": TAGS}
SEPARATED = {"type": "tags_with_separator", "separator": ", ", "tags": TAGS[:2]}
FORMATS: dict[str, tuple[Any, list[str], list[str]]] = {
    "const_string": (const('"a"\n'), ['"a"\n'], ["", '"a"']),
    "json_schema": (NUMBER, ["12"], ["", '"x"']),
    "regex": (WORD, ["ab"], ["", "a1"]),
    "lark": ({"type": "grammar", "grammar": 'start: "a" start | "b"'}, ["b", "aab"], ["aa"]),
    "ebnf": (
        {"type": "grammar", "grammar": 'root ::= "a" root | [b-c]{2}'},
        ["bc", "aabb"],
        ["aa", "ab"],
    ),
    "any_text": (TEXT, ["", "a\n<é>"], []),
    "excludes": ({**TEXT, "excludes": ["ab", "/"]}, ["", "a b"], ["cabd", "/"]),
    "sequence": (
        {"type": "sequence", "elements": [const("a"), WORD, const("1"), TEXT]},
        ["ab1", "abc1 and more"],
        ["a1", "ab"],
    ),
    "or": (
        tag("(", {"type": "or", "elements": [NUMBER, tag("x", TEXT, "y"), TEXT]}, ")"),
        ["(1)", "(x any y)", "(free)"],
        ["(1", "(a)b)"],
    ),
    "or of what ends": (tag("(", {"type": "or", "elements": [NUMBER, WORD]}, ")"), ["(1)"], ["()"]),
    "optional": (
        {"type": "sequence", "elements": [{"type": "optional", "content": const("a")}, NUMBER]},
        ["a1", "1"],
        ["aa1"],
    ),
    "star": ({"type": "star", "content": tag("<", NUMBER, ">")}, ["", "<1><2>"], ["<1"]),
    "plus": ({"type": "plus", "content": tag("<", NUMBER, ">")}, ["<1>", "<1><2>"], [""]),
    "repeat": (
        {"type": "repeat", "min": 2, "max": 3, "content": const("a")},
        ["aa", "aaa"],
        ["a", "aaaa"],
    ),
    "tag": (tag("<", TEXT, ">"), ["<>", "< a ="][:1], ["<", "<a>b"]),
    "a tag without an end": (tag("<", TEXT, ""), ["<", "<a>"], ["a"]),
    "triggered_tags": (
        TRIGGERED,
        ["", "text", "a <f=a>12</f> and <f=b>x</f>", "<g>any.<f=a>1</f>", "< f= <f"],
        ["<f=c>", "<f=a>x</f>", "a <f=a>12", "<f=a>1</f><f="],
    ),
    "triggered_tags, one at once": (
        {**TRIGGERED, "at_least_one": True},
        ["<f=a>12</f>", "<f=b>x</f> text <f=b>x</f> text"],
        ["", "text", " <f=a>12</f>"],
    ),
    "triggered_tags, one": (
        {**TRIGGERED, "stop_after_first": True},
        ["", "text", "text <f=a>12</f>"],
        ["<f=a>1</f> text", "<f=a>1</f><f=a>1</f>"],
    ),
    "triggered_tags, exactly one": (
        {**TRIGGERED, "stop_after_first": True, "at_least_one": True},
        ["<f=a>12</f>"],
        ["", "text <f=a>12</f>", "<f=a>1</f> text"],
    ),
    "triggered_tags within a tag": (
        tag("[", TRIGGERED, "]"),
        ["[]", "[text]", "[text <f=a>12</f> text]"],
        ["[text", "[<f=a>]", "[]]"],
    ),
    "one triggered tag within a tag": (
        tag("[", {**TRIGGERED, "stop_after_first": True}, "]"),
        ["[]", "[text <f=a>12</f>]"],
        ["[<f=a>1</f> ]"],
    ),
    "dispatch": (
        {"type": "dispatch", "rules": [["<n>", NUMBER], ["<w>", const("x")]], "excludes": ["#"]},
        ["", "text", "a <n>12 b <w>x"],
        ["<n>x", "a <w>", "#"],
    ),
    "dispatch, once": (
        {"type": "dispatch", "rules": [["<n>", const("1")]], "loop": False},
        ["", "text", "text <n>1"],
        ["<n>1 text"],
    ),
    "dispatch within a tag": (
        tag("[", {"type": "dispatch", "rules": [["<n>", const("1")]]}, "]"),
        ["[]", "[a <n>1 b]"],
        ["[<n>]", "[a"],
    ),
    "tags_with_separator": (SEPARATED, ["", "<f=a>1</f>", "<f=a>1</f>, <f=b>x</f>"], [", "]),
    "tags_with_separator, at least one": (
        {**SEPARATED, "at_least_one": True, "stop_after_first": True},
        ["<f=a>1</f>"],
        ["", "<f=a>1</f>, <f=a>1</f>"],
    ),
}


@pytest.fixture(name="compiler", scope="module")
def _compiler() -> GrammarCompiler:
    return GrammarCompiler(byte_vocabulary)


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_admits(compiler: GrammarCompiler, name: str) -> None:
    format_, good, bad = FORMATS[name]
    grammar = structural_tag({"type": "structural_tag", "format": format_}, {}, ENDS)
    assert [text for text in good if not admits(compiler, grammar, text)] == []
    assert [text for text in bad if admits(compiler, grammar, text)] == []


def test_the_older_form(compiler: GrammarCompiler) -> None:
    structure = {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}
    older = {"type": "structural_tag", "structures": [structure], "triggers": ["<f"]}
    grammar = structural_tag(older, {}, ENDS)
    assert admits(compiler, grammar, "text <f>12</f> text")
    assert not admits(compiler, grammar, "text <f>x</f>")


def test_markers_are_tokens(compiler: GrammarCompiler) -> None:
    tagged = {"type": "triggered_tags", "triggers": ["<t>"], "tags": [tag("<t>(", WORD, ")")]}
    grammar = structural_tag({"format": tagged}, {"<t>": OPENER}, ENDS)
    matcher = compiler.factory(grammar)()
    for byte in b"<t>12":  # no trigger: text spells no marker
        assert matcher.accept(byte)
    assert OPENER in allowed(matcher) and matcher.accept(OPENER)
    assert allowed(matcher) == [ord("(")]
    assert all(map(matcher.accept, b"(ab)"))
    assert EOS in allowed(matcher)


TOOL = {"type": "token", "token": "<t>"}
CLOSER = {"type": "token", "token": THINK_END}
MARKERS = {"<t>": OPENER, "</think>": THINK_END}
CALL = {"type": "tag", "begin": TOOL, "content": NUMBER, "end": CLOSER}
BY_TOKEN = {"type": "token_triggered_tags", "trigger_tokens": ["<t>"], "tags": [CALL]}
CALLED = [OPENER, *b"12", THINK_END]
A, B = b"ab"


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        (TOOL, [[OPENER]], [[], [A], [OPENER, OPENER]]),
        ({"type": "token", "token": A}, [[A]], [[B]]),
        ({"type": "exclude_token", "exclude_tokens": [A]}, [[B], [OPENER]], [[A], [EOS], []]),
        (
            {"type": "any_tokens", "exclude_tokens": [A, "<t>"], "max_tokens": 2},
            [[], [B], [B, THINK_END]],
            [[A], [OPENER], [B, B, B]],
        ),
        (
            {"type": "tag", "begin": TOOL, "content": {"type": "any_tokens"}, "end": CLOSER},
            [[OPENER, THINK_END], [OPENER, A, OPENER, B, THINK_END]],
            [[OPENER, A], [OPENER, THINK_END, THINK_END]],
        ),
        (CALL, [CALLED], [[OPENER, THINK_END], [*b"12"]]),
        (BY_TOKEN, [[], [A], [A, *CALLED, B, *CALLED]], [[OPENER], [A, OPENER, A]]),
        ({**BY_TOKEN, "at_least_one": True}, [CALLED, [*CALLED, A]], [[], [A, *CALLED]]),
        ({**BY_TOKEN, "stop_after_first": True}, [[A], [A, *CALLED]], [[*CALLED, A]]),
        (
            {"type": "token_dispatch", "rules": [["<t>", WORD]], "exclude_tokens": ["</think>"]},
            [[], [B, OPENER, A, A], [OPENER, A, OPENER, B]],
            [[OPENER], [THINK_END], [OPENER, OPENER]],
        ),
        ({**BY_TOKEN, "exclude_tokens": [A]}, [[B, *CALLED]], [[A]]),
    ],
    ids=lambda each: json.dumps(each)[:40],
)
def test_formats_of_tokens(
    compiler: GrammarCompiler, format_: Any, good: list[list[int]], bad: list[list[int]]
) -> None:
    def admitted(tokens: list[int]) -> bool:
        matcher = compiler.factory(structural_tag({"format": format_}, MARKERS, ENDS))()
        return all(map(matcher.accept, tokens)) and EOS in allowed(matcher)

    assert [tokens for tokens in good if not admitted(tokens)] == []
    assert [tokens for tokens in bad if admitted(tokens)] == []


@pytest.mark.parametrize(
    "bad",
    [
        *(5, None, "x", [], {}, {"format": None}, {"format": {}}, {"format": {"type": "x"}}),
        *({"structures": 5}, {"structures": [], "triggers": ["a"]}, {"structures": [5]}),
        *(
            {"format": {"type": "sequence", "elements": each}}
            for each in ([], 5, [5], [TEXT, TEXT])
        ),
        {"format": {**TRIGGERED, "triggers": ["<h"]}},
        {"format": {**TRIGGERED, "triggers": [""]}},
        {"format": {"type": "plus", "content": TEXT}},
        {"format": {"type": "repeat", "min": 1, "max": 10**9, "content": WORD}},
        {"format": {"type": "repeat", "min": -1, "content": WORD}},
        {"format": {"type": "grammar", "grammar": 'root ::= "a'}},
        {"format": {**NUMBER, "style": "xml"}},
        {"format": tag("<", WORD, 5)},
        *({"format": {"type": "token", "token": each}} for each in (None, "<h>", -1, 2**31, 1.5)),
        {"format": {"type": "any_tokens", "exclude_tokens": 5}},
        *({"format": {"type": "any_tokens", "max_tokens": each}} for each in (0, 10**6)),
        {"format": {**TEXT, "max_tokens": 5}},
        *({"format": {"type": "dispatch", "rules": each}} for each in ([], 5, ["a"], [["a"]])),
        {"format": {"type": "token_dispatch", "rules": [["<h>", WORD]]}},
        {"format": {**CALL, "begin": {"type": "token", "token": 5}}},
        {"format": {**BY_TOKEN, "trigger_tokens": [5]}},
        {"format": tag("<", WORD, [""])},
    ],
    ids=lambda bad: json.dumps(bad)[:40],
)
def test_what_is_no_structural_tag(bad: Any) -> None:
    with pytest.raises(GrammarError):
        structural_tag(bad, {"<t>": OPENER}, ENDS)


def test_deep_nesting_is_refused() -> None:
    format_: dict[str, Any] = WORD
    for _ in range(5000):
        format_ = {"type": "star", "content": format_}
    with pytest.raises(GrammarError, match="nested"):
        structural_tag({"format": format_}, {}, ENDS)
