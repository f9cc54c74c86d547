"""Structural tags: text in which some parts are structured, as a grammar.

    {"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": ["<function="],
        "tags": [{"begin": "<function=f>", "content": {"type": "json_schema", "json_schema": ...},
                  "end": "</function>"}]}}

The names are those of xgrammar's structural tags; also its older form, `structures` and `triggers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pagemill.structured import grammar as grammars
from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.lark_rules import LarkRules

_MAX_REPEATS = 1024

Fields = Mapping[str, Any]


def structural_tag(tag: Any, markers: Mapping[str, int]) -> Grammar:
    """The grammar of outputs that `tag` describes.

    `markers`: texts that the model writes as one token. A trigger that has one begins with it.

    Raises:
        GrammarError: it is none, has a format that is unknown, or is too long.
    """
    fields = _object(tag, "a structural tag")
    format_ = _triggered(fields) if "structures" in fields else _field(fields, "format", dict)
    writer = _Writer(markers)
    try:
        return writer.rules.grammar(writer.expression(format_, ends=()))
    except RecursionError:
        raise GrammarError("formats are nested too deeply") from None


def _triggered(fields: Fields) -> Fields:
    """The format that `structures` and `triggers` stand for."""
    tags: list[Fields] = []
    for each in _field(fields, "structures", list):
        structure = _object(each, "a structure")
        content = {"type": "json_schema", "json_schema": structure.get("schema", {})}
        tags.append({**structure, "content": content})
    return {"type": "triggered_tags", "triggers": fields.get("triggers"), "tags": tags}


class _Writer:
    """Writes formats as expressions. `ends`: texts one of which closes what is written, if the
    format does not end by itself (`_is_open`); it is part of the expression then."""

    def __init__(self, markers: Mapping[str, int]) -> None:
        self.rules = LarkRules(markers)
        self._formats: dict[str, Callable[[Fields, Sequence[str]], str]] = {
            "any_text": self._any_text,
            "const_string": self._const_string,
            "grammar": self._grammar,
            "json_schema": self._json_schema,
            "optional": self._repeated,
            "or": self._or,
            "plus": self._repeated,
            "regex": self._regex,
            "repeat": self._repeated,
            "sequence": self._sequence,
            "star": self._repeated,
            "tag": self._tag,
            "tags_with_separator": self._tags_with_separator,
            "triggered_tags": self._triggered_tags,
        }

    def expression(self, format_: Any, ends: Sequence[str]) -> str:
        """What `format_` allows."""
        fields = _object(format_, "a format")
        write = self._formats.get(str(fields.get("type", "tag" if "begin" in fields else "")))
        if write is None:
            known = ", ".join(self._formats)
            raise GrammarError(f"the format {str(fields.get('type'))[:64]!r} is none of {known}")
        return write(fields, ends)

    def _any_text(self, fields: Fields, ends: Sequence[str]) -> str:
        excluded = _texts(fields, "excludes") if "excludes" in fields else []
        if not ends:
            return f"{self.rules.text_without(excluded)}?"
        return _any([self.rules.text_before(end, (*ends, *excluded)) for end in ends])

    def _const_string(self, fields: Fields, ends: Sequence[str]) -> str:
        return self.rules.text(_field(fields, "value", str)) or '""'

    def _json_schema(self, fields: Fields, ends: Sequence[str]) -> str:
        if fields.get("style", "json") != "json":
            raise GrammarError("the `style` of a `json_schema` can be `json` only")
        return self.rules.schema(_field(fields, "json_schema", (dict, bool)))

    def _regex(self, fields: Fields, ends: Sequence[str]) -> str:
        return self.rules.terminal(grammars.regex_literal(_field(fields, "pattern", str)))

    def _grammar(self, fields: Fields, ends: Sequence[str]) -> str:
        text = grammars.lark_text(_field(fields, "grammar", str))
        return self.rules.rule(f"%lark {{\n{text}\n}}")

    def _sequence(self, fields: Fields, ends: Sequence[str]) -> str:
        *elements, last = _formats(fields, "elements")
        if any(map(_is_open, elements)):
            raise GrammarError("in a `sequence` only the last element may be of any length")
        written = [self.expression(each, ()) for each in elements]
        return " ".join((*written, self.expression(last, ends)))

    def _or(self, fields: Fields, ends: Sequence[str]) -> str:
        closing = ends if _is_open(fields) else ()
        return _any([self._ended(each, closing) for each in _formats(fields, "elements")])

    def _repeated(self, fields: Fields, ends: Sequence[str]) -> str:
        kind = fields["type"]
        content = _field(fields, "content", dict)
        if _is_open(content):
            raise GrammarError(f"the content of `{kind}` must end by itself")
        return f"({self.expression(content, ())}){_times(fields)}"

    def _tag(self, fields: Fields, ends: Sequence[str]) -> str:
        return f"{self.rules.text(_begin(fields))} {self._inside(fields)}"

    def _inside(self, tag: Fields) -> str:
        """The content of a tag, and its end."""
        end = tag.get("end", "")
        ends = [end] if isinstance(end, str) else _texts(tag, "end")
        return self._ended(_field(tag, "content", dict), [each for each in ends if each])

    def _ended(self, format_: Any, ends: Sequence[str]) -> str:
        """A format and one of `ends`, if there are any."""
        content = self.expression(format_, ends)
        if not ends or _is_open(format_):
            return content
        return f"{content} {_any([self.rules.text(end) for end in ends])}"

    def _tags_with_separator(self, fields: Fields, ends: Sequence[str]) -> str:
        tags = _formats(fields, "tags")
        tag = self.rules.rule(_any([self._tag(each, ()) for each in tags]))
        separator = self.rules.text(_field(fields, "separator", str))
        more = "" if fields.get("stop_after_first") else f"({separator} {tag})*"
        optional = "" if fields.get("at_least_one") else "?"
        return f"({tag} {more}){optional}"

    def _triggered_tags(self, fields: Fields, ends: Sequence[str]) -> str:
        triggers = _texts(fields, "triggers")
        stops = [*triggers, *ends, *(_texts(fields, "excludes") if "excludes" in fields else ())]
        insides = [
            (_begin(tag), self.rules.rule(self._inside(tag))) for tag in _formats(fields, "tags")
        ]
        behind: dict[str, list[str]] = {}
        for begin, inside in insides:
            trigger = min(filter(begin.startswith, triggers), key=len, default="")
            if not trigger:
                raise GrammarError(f"the tag {begin[:64]!r} begins with none of `triggers`")
            within = f"{self.rules.text(begin[len(trigger) :])} {inside}"
            behind.setdefault(trigger, []).append(within)
        ways = [f"{self.rules.text_before(t, stops)} {_any(tags)}" for t, tags in behind.items()]
        triggered = self.rules.rule(_any(ways))
        at_once = _any([f"{self.rules.text(begin)} {inside}" for begin, inside in insides])
        rest = self._any_text({"excludes": stops}, ends)
        is_needed = fields.get("at_least_one")
        if not fields.get("stop_after_first"):
            return f"{at_once if is_needed else ''} {triggered}* {rest}"
        closed = _any([self.rules.text(end) for end in ends]) if ends else ""
        if is_needed:
            return f"{at_once} {closed}"
        return f"({triggered} {closed} | {rest})"


def _any(expressions: Sequence[str]) -> str:
    return f"({' | '.join(expressions)})"


def _is_open(format_: Any) -> bool:
    """True if what ends a format has to be known to write it."""
    fields = _object(format_, "a format")
    match fields.get("type"):
        case "any_text" | "triggered_tags":
            return True
        case "sequence":
            return _is_open(_formats(fields, "elements")[-1])
        case "or":
            return any(map(_is_open, _formats(fields, "elements")))
        case _:
            return False


def _times(fields: Fields) -> str:
    match fields["type"]:
        case "optional":
            return "?"
        case "star":
            return "*"
        case "plus":
            return "+"
        case _:
            least, most = _field(fields, "min", int), fields.get("max", -1)
            if not isinstance(most, int) or not 0 <= least <= _MAX_REPEATS >= most:
                raise GrammarError(f"`min` and `max` of `repeat` are 0 to {_MAX_REPEATS}")
            return f"{{{least},{most if most >= 0 else ''}}}"


def _begin(tag: Any) -> str:
    return _field(_object(tag, "a tag"), "begin", str)


def _object(value: Any, what: str) -> Fields:
    if not isinstance(value, dict):
        raise GrammarError(f"{what} must be an object")
    return cast(Fields, value)


def _field(fields: Fields, name: str, kind: Any) -> Any:
    value = fields.get(name)
    if not isinstance(value, kind):
        raise GrammarError(f"`{name}` is missing, or of the wrong type")
    return value


def _formats(fields: Fields, name: str) -> list[Any]:
    values = _field(fields, name, list)
    if not values:
        raise GrammarError(f"`{name}` is empty")
    return values


def _texts(fields: Fields, name: str) -> list[str]:
    values = _formats(fields, name)
    if not all(isinstance(value, str) and value for value in values):
        raise GrammarError(f"`{name}` must be texts")
    return values
