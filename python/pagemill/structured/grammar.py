"""Grammars, from what a request says. Each is text for llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pagemill.structured.closed_objects import close_objects

MAX_GRAMMAR_CHARS = 2**18
MAX_CHOICES = 4096
ANY_OBJECT = {"type": "object"}
"""JSON Schema of any JSON object."""
_MAX_EBNF_CHARS = 2**16
"""It is translated in 1 us a character, while the server waits."""
_MAX_WHITE_SPACE = 8
"""Characters between two tokens of JSON: a model that likes line breaks would write no end."""


class GrammarError(ValueError):
    """A request's fault; `str()` says which."""


class Reasoning(msgspec.Struct, array_like=True, frozen=True):
    """Text before the constraint begins: it ends with one of the tokens `closers`. The output
    `begins_within` it, or may open it with one of the tokens `openers`."""

    openers: tuple[int, ...]
    closers: tuple[int, ...]
    begins_within: bool


class Grammar(msgspec.Struct, array_like=True, frozen=True):
    """What an output has to be."""

    text: str
    """In the language of llguidance: Lark, or its JSON."""
    reasoning: Reasoning | None = None
    """What may come before, and is free."""
    schema: str | None = None
    """The JSON Schema that `text` says, if it says nothing else."""


def json_schema(schema: Mapping[str, Any] | bool) -> Grammar:
    """JSON that is valid against `schema`; objects have no other properties than it lists.

    Raises:
        GrammarError: it is too long.
    """
    grammar = _bounded({"grammars": [{"json_schema": _with_options(schema)}]})
    closed = schema if isinstance(schema, bool) else close_objects(schema)
    return Grammar(grammar.text, schema=json.dumps(closed, ensure_ascii=False))


def schema_text(schema: Mapping[str, Any] | bool) -> str:
    """`schema` as text for `%json` in a Lark grammar."""
    return json.dumps(_with_options(schema), ensure_ascii=False)


def regex(pattern: str) -> Grammar:
    """Text that all of `pattern` matches: a regular expression of Rust, with lookarounds missing.

    Raises:
        GrammarError: it is too long.
    """
    return lark(f"start: {regex_literal(pattern)}")


def choice(options: Sequence[str]) -> Grammar:
    """One of `options`.

    Raises:
        GrammarError: there are none, too many, or they are too long.
    """
    if not 0 < len(options) <= MAX_CHOICES:
        raise GrammarError(f"there are {len(options)} choices; 1 to {MAX_CHOICES} are allowed")
    if not all(options):
        raise GrammarError("a choice is empty")
    rules = " | ".join(json.dumps(option, ensure_ascii=False) for option in options)
    return _bounded({"grammars": [{"lark_grammar": f"start: {rules}"}]})


def lark(text: str) -> Grammar:
    """What the rule `start` of a Lark grammar says.

    Raises:
        GrammarError: it is too long.
    """
    return _bounded({"grammars": [{"lark_grammar": text}]})


def regex_literal(pattern: str) -> str:
    """A regular expression as Lark writes it."""
    # In Lark a slash ends the expression, and a line break may not be in it.
    escaped = pattern.replace("\n", r"\n").replace("\r", r"\r")
    parts: list[str] = []
    at = 0
    while at < len(escaped):
        if escaped[at] == "\\":
            parts.append(escaped[at : at + 2])
            at += 2
        else:
            parts.append(r"\/" if escaped[at] == "/" else escaped[at])
            at += 1
    return f"/{''.join(parts)}/"


def lark_text(text: str) -> str:
    """A grammar in the language of llguidance, from one in it or in EBNF (as llama.cpp and xgrammar
    have it, with `root ::=`).

    Raises:
        GrammarError: it is too long, or in EBNF and faulty.
    """
    if "::=" not in text:
        return text
    if len(text) > _MAX_EBNF_CHARS:
        raise GrammarError(f"a grammar in EBNF has at most {_MAX_EBNF_CHARS} characters")
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except (GbnfToLarkError, RecursionError) as error:
        raise GrammarError(f"the grammar is no EBNF: {error}") from None


def _bounded(grammar: Mapping[str, Any]) -> Grammar:
    text = json.dumps(grammar, ensure_ascii=False)
    if len(text) > MAX_GRAMMAR_CHARS:
        raise GrammarError(
            f"the grammar has {len(text)} characters; at most {MAX_GRAMMAR_CHARS} are allowed"
        )
    return Grammar(text)


def _with_options(schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    blank = rf"[ \t\r\n]{{1,{_MAX_WHITE_SPACE}}}"
    return {**close_objects(schema), "x-guidance": {"whitespace_pattern": blank}}
