"""Grammars of calls of tools, in the spelling of the model's format.

    grammar = required_calls(formats, tools, is_single=False)
    grammar = calls_or_json(formats, tools, schema, is_single=False)
    grammar = calls_from_opener(formats, tools, is_single=False, ends=eos_token_ids)
    grammar = calls_from_text(formats, tools, is_single=False)

Names and arguments are those of the tools. Values that are written as plain text are any text, or
one of the strings of an `enum`; other values, and arguments in JSON, are valid by their schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pagemill.render.formats.format import INDEX, Parameters, Spelling, Value
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
    return formats.tools is not None and formats.tools.spelling is not None


def required_calls(formats: Formats, tools: Tools, *, is_single: bool) -> Grammar:
    """Calls of `tools` and nothing else: one, if `is_single`, or more.

    Raises:
        GrammarError: a tool cannot be spelled in the model's format.
    """
    spelled = _Calls(formats, tools)
    return spelled.alone(spelled.section(is_single))


def calls_or_json(
    formats: Formats, tools: Tools, schema: Schema | bool, *, is_single: bool
) -> Grammar:
    """Calls of `tools`, as `required_calls` has them, or JSON that is valid against `schema`.

    Raises:
        GrammarError: a tool cannot be spelled in the model's format.
    """
    spelled = _Calls(formats, tools)
    calls, answer = spelled.section(is_single), spelled.rules.schema(schema)
    return spelled.alone(f"({calls} | {answer})")


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
    if opener is None:
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
    assert formats.tools is not None and formats.tools.spelling is not None
    spelling, beginning = formats.tools.spelling, _beginning(formats)
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


def _beginning(formats: Formats) -> str:
    assert formats.tools is not None and formats.tools.spelling is not None
    return formats.tools.spelling.begin + formats.tools.spelling.before_name


class _Calls:
    """Writes calls as expressions of a grammar's `rules`."""

    def __init__(self, formats: Formats, tools: Tools, spelling: Spelling | None = None) -> None:
        """`spelling`: in place of the format's."""
        assert formats.tools is not None and formats.tools.spelling is not None
        self.spelling: Spelling = spelling or formats.tools.spelling
        self.rules = LarkRules({marker: index for index, marker in formats.marker_ids.items()})
        self._follows_reasoning = formats.reasoning is not None
        states = formats.tools.states.values()
        self._ends = {end for state in states if isinstance(state, Value) for end in state.on}
        self._call = self.rules.rule(" | ".join(self._named(name, tools[name]) for name in tools))

    def alone(self, answer: str) -> Grammar:
        """An output that is `answer`."""
        # A model that has written a line's end can only go on with a call if it may not stop there.
        line_ends = self.rules.terminal(r"/\n{1,2}/")
        before = f"{line_ends}? " if self._follows_reasoning else ""
        return self.rules.grammar(f"{before}{answer} {line_ends}?")

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
            ways.append(f"{self._text(written.before_value)} {self._plain(schema, written)}")
        if written.quotes or (types != _STRING and (written.before_json or not ways)):
            before = self._text(written.before_json or written.before_value)
            ways.append(
                f"{before} {self.rules.schema(described)} {self._text(written.after_value)}"
            )
        return self.rules.rule(f"{name} ({' | '.join(ways)})")

    def _plain(self, schema: Any, written: Parameters) -> str:
        """Plain text, and what ends it."""
        choices = _fields(schema).get("enum")
        if isinstance(choices, list) and all(map(self._is_plain, cast(list[Any], choices))):
            options = " | ".join(map(quoted, cast(list[str], choices)))
            return f"({options}) {self._text(written.after_value)}"
        return self.rules.text_before(written.after_value, self._ends)

    def _is_plain(self, choice: Any) -> bool:
        """True if a string comes back as it is written."""
        return (
            isinstance(choice, str)
            and 0 < len(choice.strip()) == len(choice)
            and not any(end in choice for end in self._ends)
        )

    def _unknown(self, written: Parameters) -> str:
        """Any arguments."""
        key = f"{self._text(written.before_key)} /[A-Za-z_][A-Za-z0-9_]{{0,63}}/"
        if written.quotes:
            value = f"{self.rules.schema({})} {self._text(written.after_value)}"
        else:
            value = self._plain(None, written)
        one = self.rules.rule(f"{key} {self._text(written.before_value)} {value}")
        return f"({one} ({self._text(written.between)} {one})*)?"

    def _text(self, text: str) -> str:
        """Exactly this text, in which `INDEX` is any number."""
        between = [self.rules.text(part) for part in text.split(INDEX)]
        return " /[0-9]{1,3}/ ".join(between)


def _arguments(schema: Schema | None) -> Schema:
    """The schema of an object; it is empty if there is no schema."""
    if not schema:
        return {"type": "object", "additionalProperties": False}
    return {**schema, "type": "object"}


def _fields(schema: Any) -> Schema:
    return cast(Schema, schema) if isinstance(schema, Mapping) else {}


def _is_python(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
