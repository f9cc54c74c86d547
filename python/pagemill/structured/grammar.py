"""Grammars, from what a request says. Each is text for llguidance."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

MAX_GRAMMAR_CHARS = 2**18
MAX_SCHEMA_CHARS = 2**21
MAX_CHOICES = 4096
ANY_OBJECT = {"type": "object"}
"""JSON Schema of any JSON object."""
_MAX_EBNF_CHARS = 2**16
"""It is translated in 1 us a character, while the server waits."""


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
    schemas: tuple[str, ...] = ()
    """JSON Schemas, as JSON. The rule `schema0` of `text` is JSON of the first one, and so on."""

    @property
    def sole_schema(self) -> str | None:
        """The schema that says all there is of an output; None if something else does."""
        is_all = self.text == f"start: {schema_rule(0)}" and len(self.schemas) == 1
        return self.schemas[0] if is_all else None


def json_schema(schema: Mapping[str, Any] | bool) -> Grammar:
    """JSON that is valid against `schema`; objects have no other properties than it lists.

    Raises:
        GrammarError: it is too long.
    """
    return Grammar(f"start: {schema_rule(0)}", schemas=(schema_text(schema),))


def schema_rule(index: int) -> str:
    """The name of the rule of one of `Grammar.schemas`."""
    return f"schema{index}"


def schema_text(schema: Mapping[str, Any] | bool) -> str:
    """`schema` as one of `Grammar.schemas`.

    Raises:
        GrammarError: it is too long, or nested too deeply.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except RecursionError:
        raise GrammarError("the schema is nested too deeply") from None
    if len(text) > MAX_SCHEMA_CHARS:
        raise GrammarError(
            f"the schema has {len(text)} characters; at most {MAX_SCHEMA_CHARS} are allowed"
        )
    return text


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


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A grammar with schemas as one text."""

    grammar: str
    schemas: tuple[str, ...]


def as_text(grammar: Grammar) -> str:
    """The constraint, without its reasoning, as one text that `of_text` reads."""
    if not grammar.schemas:
        return grammar.text
    return msgspec.json.encode(_Written(grammar.text, grammar.schemas)).decode()


def of_text(text: str) -> Grammar:
    """A grammar in the language of llguidance, Lark or its JSON, in EBNF, or from `as_text`.

    Raises:
        GrammarError: it is too long, or in EBNF and faulty.
    """
    if not text.lstrip().startswith("{"):
        return lark(lark_text(text))
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        return _of_written(msgspec.json.decode(text, type=_Written))
    _check_length(text)
    return Grammar(text)


def _of_written(written: _Written) -> Grammar:
    """The grammar that `as_text` wrote, checked: clients send it back.

    Raises:
        GrammarError: it is too long, or its parts do not fit.
    """
    _check_length(written.grammar)
    if sum(map(len, written.schemas)) > MAX_SCHEMA_CHARS:
        raise GrammarError(f"the schemas have more than {MAX_SCHEMA_CHARS} characters")
    try:
        for schema in written.schemas:
            msgspec.json.decode(schema, type=dict[str, Any] | bool)
        grammar = Grammar(written.grammar, schemas=written.schemas)
        if grammar.sole_schema is None:
            msgspec.json.decode(written.grammar, type=_OneLark)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise GrammarError(f"the grammar cannot be read: {error}") from None
    return grammar


class _Lark(msgspec.Struct, forbid_unknown_fields=True):
    lark_grammar: str


class _OneLark(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of `lark`."""

    grammars: tuple[_Lark]


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
    _check_length(text)
    return Grammar(text)


def _check_length(text: str) -> None:
    if len(text) > MAX_GRAMMAR_CHARS:
        raise GrammarError(
            f"the grammar has {len(text)} characters; at most {MAX_GRAMMAR_CHARS} are allowed"
        )
