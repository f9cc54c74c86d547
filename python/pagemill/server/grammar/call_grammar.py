"""Grammars of calls of tools, in the spelling of the model's format.

    grammar = required_calls(formats, tools, is_single=False, ends=eos_token_ids)
    grammar = calls_or_json(formats, tools, schema, is_single=False, ends=eos_token_ids)
    grammar = json_answer(formats, schema, ends=eos_token_ids)
    grammar = calls_from_opener(formats, tools, is_single=False, ends=eos_token_ids)
    grammar = calls_from_text(formats, tools, is_single=False)

Names and arguments are those of the tools. Values that are written as plain text are any text, or
one of the strings of an `enum`; other values, and arguments in JSON, are valid by their schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pagemill.render.formats.format import INDEX, KEY, Parameters, Spelling, Value
from pagemill.render.formats.typed_values import parameter, type_names
from pagemill.render.output_machine import Formats
from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.lark_rules import LarkRules, quoted

Schema = Mapping[str, Any]
Tools = Mapping[str, Schema | None]
"""JSON Schema of each tool's parameters, by its name; None for a tool without parameters."""

_STRING = frozenset({"string"})
_NAME = re.compile(r"[\w.-]{1,256}")
_DEFINITIONS = ("$defs", "definitions")


def can_spell(formats: Formats) -> bool:
    """True if grammars of calls can be written for a model with these formats."""
    return formats.spelling is not None


def spans_reasoning(formats: Formats) -> bool:
    """True if `required_calls`, `calls_or_json` and `json_answer` are of whole outputs, with the
    model's reasoning."""
    return formats.messages is not None


def required_calls(
    formats: Formats, tools: Tools, *, is_single: bool, ends: Sequence[int]
) -> Grammar:
    """Calls of `tools` and nothing else: one, if `is_single`, or more.

    `ends`: tokens that end an output.

    Raises:
        GrammarError: a tool cannot be spelled in the model's format.
    """
    spelled = _Calls(formats, tools)
    return spelled.alone(spelled.section(is_single), ends)


def calls_or_json(
    formats: Formats, tools: Tools, schema: Schema | bool, *, is_single: bool, ends: Sequence[int]
) -> Grammar:
    """Calls of `tools`, as `required_calls` has them, or JSON that is valid against `schema`.

    Raises:
        GrammarError: a tool cannot be spelled in the model's format.
    """
    spelled = _Calls(formats, tools)
    return spelled.alone(f"({spelled.section(is_single)} | {spelled.answer(schema)})", ends)


def json_answer(formats: Formats, schema: Schema | bool, *, ends: Sequence[int]) -> Grammar:
    """An answer that is JSON, valid against `schema`, of a model that writes messages."""
    spelled = _Calls(formats, {})
    return spelled.alone(spelled.answer(schema), ends)


def opener_token(formats: Formats) -> int | None:
    """The token that begins a call, or several, if that is one token."""
    text = _beginning(formats)
    return next((i for i, marker in formats.marker_ids.items() if text.startswith(marker)), None)


def calls_from_opener(
    formats: Formats, tools: Tools, *, is_single: bool, ends: Sequence[int]
) -> Grammar | None:
    """Any output in which what `opener_token` begins is a call of `tools`; None without such a
    token.

    `ends`: tokens that end an output.

    Raises:
        GrammarError: a tool cannot be spelled in the model's format.
    """
    opener = opener_token(formats)
    if opener is None or formats.tools is None:
        return None
    spelled = _Calls(formats, tools)
    section = spelled.rules.rule(spelled.section(is_single or not spelled.spelling.begin))
    others = ",".join(map(str, sorted({opener, *ends})))
    free = spelled.rules.rule(f"<[^{others}]>")
    start = f"{free}* ({section} {free}*)?" if is_single else f"({free} | {section})*"
    return spelled.rules.grammar(start)


def calls_from_text(formats: Formats, tools: Tools, *, is_single: bool) -> Grammar | None:
    """Any output in which what the format's opener begins is a call of `tools`; None if calls have
    no opener, but are known by what an output begins with.

    Its masks are those of a text without the opener: slow, 8 ns for each token of the vocabulary.

    Raises:
        GrammarError: a tool cannot be spelled in the model's format.
    """
    if formats.tools is None:
        return None
    spelling, beginning = _spelling(formats), _beginning(formats)
    openers = [text for text in formats.tools.openers if beginning.startswith(text)]
    if not openers:
        return None
    opener = max(openers, key=len)
    if spelling.begin:
        spelling = replace(spelling, begin=spelling.begin.removeprefix(opener))
    else:
        spelling = replace(spelling, before_name=spelling.before_name.removeprefix(opener))
    spelled = _Calls(formats, tools, spelling)
    free = spelled.rules.text_before(opener, [opener])
    section = spelled.rules.rule(f"{free} {spelled.section(is_single or not spelling.begin)}")
    rest = spelled.rules.text_without([opener])
    return spelled.rules.grammar(f"{section}{'?' if is_single else '*'} {rest}?")


def _spelling(formats: Formats) -> Spelling:
    assert formats.spelling is not None
    return formats.spelling


def _beginning(formats: Formats) -> str:
    spelling = _spelling(formats)
    return spelling.begin + spelling.before_name


class _Calls:
    """Writes calls as expressions of a grammar's `rules`."""

    def __init__(self, formats: Formats, tools: Tools, spelling: Spelling | None = None) -> None:
        """`spelling`: in place of the format's."""
        self.spelling: Spelling = spelling or _spelling(formats)
        self.rules = LarkRules({marker: index for index, marker in formats.marker_ids.items()})
        self._follows_reasoning = formats.reasoning is not None
        self._markers = sorted(formats.marker_ids)
        states = formats.tools.states.values() if formats.tools is not None else ()
        self._ends = {end for state in states if isinstance(state, Value) for end in state.on}
        calls = [self._named(name, tools[name]) for name in tools]
        self._call = self.rules.rule(" | ".join(calls)) if calls else ""

    def alone(self, answer: str, ends: Sequence[int]) -> Grammar:
        """An output that is `answer`, behind reasoning if the format's messages have it."""
        # A model that has written a line's end can only go on with a call if it may not stop there.
        line_ends = self.rules.terminal(r"/\n{1,2}/")
        before = f"{line_ends}? " if self._follows_reasoning else ""
        opener, closer = self.spelling.thought
        if opener:
            before = f"({self._text(opener)} {self._thought(closer, ends)})? "
        return self.rules.grammar(f"{before}{answer} {line_ends}?")

    def answer(self, schema: Schema | bool) -> str:
        """An answer that is JSON."""
        return f"{self._text(self.spelling.answer)} {self.rules.schema(schema)}"

    def _thought(self, closer: str, ends: Sequence[int]) -> str:
        """Any reasoning, and `closer` behind it."""
        if not self._markers:
            return self.rules.text_before(closer, [closer])
        others = ",".join(map(str, sorted({*self._markers, *ends})))
        return f"{self.rules.rule(f'<[^{others}]>')}* {self._text(closer)}"

    def section(self, is_single: bool) -> str:
        """One call, or any number of them, and what surrounds them all."""
        begin, between = self._text(self.spelling.begin), self._text(self.spelling.between)
        more = "" if is_single or self.spelling.is_single else f"({between} {self._call})*"
        return f"{begin} {self._call} {more} {self._text(self.spelling.end)}"

    def _named(self, name: str, schema: Schema | None) -> str:
        spelling = self.spelling
        if not _NAME.fullmatch(name):
            raise GrammarError(f"the name {name[:64]!r} of a tool cannot be written")
        if spelling.parameters is None:
            arguments = self.rules.schema(_arguments(schema))
        elif spelling.parameters.quotes and not _is_python(name):
            raise GrammarError(f"the name {name[:64]!r} of a tool is none of Python")
        else:
            arguments = self._each(schema, spelling.parameters)
        before = self._text(f"{spelling.before_name}{name}{spelling.before_arguments}")
        return self.rules.rule(f"{before} {arguments} {self._text(spelling.after_arguments)}")

    def _each(self, schema: Schema | None, written: Parameters) -> str:
        """Arguments that are written one by one, in the schema's order."""
        if not schema:
            return ""
        if not isinstance(schema.get("properties"), dict):
            return self._unknown(written)
        properties = cast(dict[str, Any], schema["properties"])
        required = schema.get("required")
        shared = {key: schema[key] for key in _DEFINITIONS if key in schema}
        between = self._text(written.between)
        # From the last argument to the first: `rest` follows one, `first` is where they begin.
        rest, first, may_be_none = "", "", True
        for key, each in reversed(properties.items()):
            described = {**shared, **_fields(each)}
            argument = self._argument(key, parameter(schema, key), described, written)
            begun = f"{argument} {rest}"
            if isinstance(required, list) and key in required:
                first, may_be_none = self.rules.rule(begun), False
                rest = self.rules.rule(f"{between} {begun}")
            else:
                first = self.rules.rule(f"{begun} | {first}" if first else begun)
                rest = self.rules.rule(f"({between} {argument})? {rest}")
        return f"{first}?" if first and may_be_none else first

    def _argument(self, key: str, schema: Any, described: Schema, written: Parameters) -> str:
        """An argument. `described`: its schema, with the definitions that it refers to."""
        if not _NAME.fullmatch(key) or (written.quotes and not key.isidentifier()):
            raise GrammarError(f"the name {key[:64]!r} of a parameter cannot be written")
        name = self._text(written.before_key + key)
        types = type_names(schema)
        ways: list[str] = []
        if not written.quotes and (not types or "string" in types):
            plain = self._plain(schema, written, key)
            ways.append(f"{self._text(written.before_value)} {plain}")
        if written.quotes or (types != _STRING and (written.before_json or not ways)):
            before = self._text(written.before_json or written.before_value)
            after = written.after_value if written.after_json is None else written.after_json
            closer = self._text(after.replace(KEY, key))
            ways.append(f"{before} {self.rules.schema(described)} {closer}")
        return self.rules.rule(f"{name} ({' | '.join(ways)})")

    def _plain(self, schema: Any, written: Parameters, key: str) -> str:
        """Plain text, and what ends it."""
        end = written.after_value.replace(KEY, key)
        stops = {*self._ends, end, *filter(None, [written.mark])}
        choices = _fields(schema).get("enum")
        if isinstance(choices, list) and all(
            _is_plain(choice, stops) for choice in cast(list[Any], choices)
        ):
            options = " | ".join(map(quoted, cast(list[str], choices)))
            return f"({options}) {self._text(end)}"
        return self.rules.text_before(end, stops)

    def _unknown(self, written: Parameters) -> str:
        """Any arguments."""
        key = f"{self._text(written.before_key)} /[A-Za-z_][A-Za-z0-9_]{{0,63}}/"
        if written.quotes:
            value = f"{self.rules.schema({})} {self._text(written.after_value)}"
        elif KEY in written.after_value:
            return ""  # what cannot be written without knowing the key is left out
        else:
            value = self._plain(None, written, "")
        one = self.rules.rule(f"{key} {self._text(written.before_value)} {value}")
        return f"({one} ({self._text(written.between)} {one})*)?"

    def _text(self, text: str) -> str:
        """Exactly this text, in which `INDEX` is any number."""
        between = [self.rules.text(part) for part in text.split(INDEX)]
        return " /[0-9]{1,3}/ ".join(between)


def _is_plain(choice: Any, stops: Collection[str]) -> bool:
    """True if a string comes back as it is written."""
    return (
        isinstance(choice, str)
        and 0 < len(choice.strip()) == len(choice)
        and not any(stop in choice for stop in stops)
    )


def _arguments(schema: Schema | None) -> Schema:
    """The schema of an object; it is empty if there is no schema."""
    if not schema:
        return {"type": "object", "additionalProperties": False}
    return {**schema, "type": "object"}


def _fields(schema: Any) -> Schema:
    return cast(Schema, schema) if isinstance(schema, Mapping) else {}


def _is_python(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
