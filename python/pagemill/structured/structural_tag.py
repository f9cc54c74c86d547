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
_MAX_TOKEN_ID = 2**31

Fields = Mapping[str, Any]


def structural_tag(tag: Any, markers: Mapping[str, int], eos_token_ids: Sequence[int]) -> Grammar:
    """The grammar of outputs that `tag` describes.

    `markers`: texts that the model writes as one token. A trigger that has one begins with it.
    `eos_token_ids`: what ends an output, and is none of any tokens.

    Raises:
        GrammarError: it is none, has a format that is unknown, or is too long.
    """
    fields = _object(tag, "a structural tag")
    format_ = _triggered(fields) if "structures" in fields else _field(fields, "format", dict)
    writer = _Writer(markers, eos_token_ids)
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

    def __init__(self, markers: Mapping[str, int], eos_token_ids: Sequence[int]) -> None:
        self.rules = LarkRules(markers)
        self._markers = markers
        self._marker_of = {token: marker for marker, token in markers.items()}
        self._eos = eos_token_ids
        self._formats: dict[str, Callable[[Fields, Sequence[str]], str]] = {
            "any_text": self._any_text,
            "any_tokens": self._any_tokens,
            "const_string": self._const_string,
            "dispatch": self._dispatch,
            "exclude_token": self._any_token,
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
            "token": self._token,
            "token_dispatch": self._token_dispatch,
            "token_triggered_tags": self._token_triggered_tags,
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
        for name in ("max_tokens", "max_chars"):
            if fields.get(name) is not None:
                raise GrammarError(f"the `{name}` of `any_text` cannot be honoured")
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

    def _token(self, fields: Fields, ends: Sequence[str]) -> str:
        return self.rules.token(self._token_id(fields.get("token")))

    def _any_token(self, fields: Fields, ends: Sequence[str]) -> str:
        closing = [self._markers[end] for end in ends if end in self._markers]
        return self.rules.token_except(
            [*self._token_ids(fields, "exclude_tokens"), *closing, *self._eos]
        )

    def _any_tokens(self, fields: Fields, ends: Sequence[str]) -> str:
        token, most = self.rules.rule(self._any_token(fields, ends)), fields.get("max_tokens")
        if most is None:
            return f"{token}*"
        if type(most) is not int or not 1 <= most <= _MAX_REPEATS:
            raise GrammarError(f"the `max_tokens` of `any_tokens` is 1 to {_MAX_REPEATS}")
        return f"{token}{{0,{most}}}"

    def _token_triggered_tags(self, fields: Fields, ends: Sequence[str]) -> str:
        triggers = self._token_ids(fields, "trigger_tokens")
        tags = _formats(fields, "tags")
        for tag in tags:
            if self._markers.get(self._marker(_object(tag, "a tag").get("begin"))) not in triggers:
                raise GrammarError("a tag begins with none of `trigger_tokens`")
        tag = self.rules.rule(_any([self._tag(each, ()) for each in tags]))
        excluded = [*triggers, *self._token_ids(fields, "exclude_tokens")]
        free = self.rules.rule(self._any_token({"exclude_tokens": excluded}, ends))
        if fields.get("at_least_one"):
            return tag if fields.get("stop_after_first") else f"{tag} ({free} | {tag})*"
        return f"{free}* {tag}?" if fields.get("stop_after_first") else f"({free} | {tag})*"

    def _dispatch(self, fields: Fields, ends: Sequence[str]) -> str:
        tags = _tags_of_rules(fields)
        triggers = {"triggers": [tag["begin"] for tag in tags], "tags": tags}
        return self._triggered_tags({**_dispatched(fields), **triggers}, ends)

    def _token_dispatch(self, fields: Fields, ends: Sequence[str]) -> str:
        tags = _tags_of_rules(fields)
        tokens = [tag["begin"] for tag in tags]
        begun = [{**tag, "begin": {"type": "token", "token": tag["begin"]}} for tag in tags]
        triggers = {"trigger_tokens": tokens, "tags": begun}
        return self._token_triggered_tags({**_dispatched(fields), **triggers}, ends)

    def _marker(self, text: Any) -> str:
        """The begin or the end of a tag: text, or a token that is a marker."""
        if isinstance(text, str):
            return text
        fields = _object(text, "a token")
        marker = self._marker_of.get(self._token_id(fields.get("token")))
        if fields.get("type") != "token" or marker is None:
            raise GrammarError("tags begin and end with texts, or with control tokens of the model")
        return marker

    def _token_id(self, token: Any) -> int:
        if isinstance(token, str) and token in self._markers:
            return self._markers[token]
        if type(token) is not int or not 0 <= token < _MAX_TOKEN_ID:
            raise GrammarError(f"{str(token)[:64]!r} is neither a token id nor a control token")
        return token

    def _token_ids(self, fields: Fields, name: str) -> list[int]:
        values = fields.get(name, [])
        if not isinstance(values, list) or len(cast(list[Any], values)) > _MAX_REPEATS:
            raise GrammarError(f"`{name}` must be a list of at most {_MAX_REPEATS} tokens")
        return [self._token_id(token) for token in cast(list[Any], values)]

    def _tag(self, fields: Fields, ends: Sequence[str]) -> str:
        begin = self._marker(_object(fields, "a tag").get("begin"))
        return f"{self.rules.text(begin)} {self._inside(fields)}"

    def _inside(self, tag: Fields) -> str:
        """The content of a tag, and its end."""
        end = tag.get("end", "")
        ends = _texts(tag, "end") if isinstance(end, list) else [self._marker(end)]
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


def _tags_of_rules(fields: Fields) -> list[dict[str, Any]]:
    """The `rules` of a dispatch, pairs of what begins and what follows, as tags without an end."""
    tags: list[dict[str, Any]] = []
    for rule in _formats(fields, "rules"):
        pair = cast(list[Any], rule if isinstance(rule, list) else [])
        if len(pair) != 2:
            raise GrammarError("a rule must be a pair of a pattern and a format")
        tags.append({"begin": pair[0], "content": pair[1], "end": ""})
    return tags


def _dispatched(fields: Fields) -> dict[str, Any]:
    """The other fields of a dispatch, as triggered tags call them."""
    names = ("excludes", "exclude_tokens")
    kept = {name: fields[name] for name in names if fields.get(name)}
    return {**kept, "stop_after_first": fields.get("loop", True) is False}


def _any(expressions: Sequence[str]) -> str:
    return f"({' | '.join(expressions)})"


def _is_open(format_: Any) -> bool:
    """True if what ends a format has to be known to write it."""
    fields = _object(format_, "a format")
    match fields.get("type"):
        case "any_text" | "dispatch" | "triggered_tags":
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
