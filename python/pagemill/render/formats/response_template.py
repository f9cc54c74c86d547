"""The format that a checkpoint describes itself, by the `response_template` of its tokenizer.

Source: https://huggingface.co/docs/transformers/main/chat_response_parsing. A template has fields,
each with anchors that open and close it and a kind of content; here they become states. Fields are
the reasoning, the answer and calls of tools. What cannot be a state is refused with its place:

- patterns are those of `anchor_patterns`, and begin with text;
- calls are JSON, or a name that the opener has with JSON, elements or lines as arguments.

Where a prompt ends within a field is known by the field's opener, so the template's `start_anchor`
is not used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pagemill.render.errors import RenderError
from pagemill.render.formats.anchor_patterns import (
    End,
    Part,
    Sequence,
    Space,
    Words,
    anchors,
)
from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import (
    ANSWER,
    REASONING,
    Body,
    Fork,
    Gap,
    Header,
    MessageFormat,
    Said,
    State,
    Value,
)
from pagemill.render.formats.json_calls import JsonArguments, JsonCall
from pagemill.render.formats.line_pairs import LinePairs
from pagemill.render.formats.pairs import PairsShape
from pagemill.render.json_values import as_array, as_object

_THINKING = ("thinking", "reasoning_content", "reasoning")
_CALLS = "tool_calls"
_FIELDS = (*_THINKING, "content", _CALLS)
_BETWEEN = "between"
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_TAG = r"<[^<>\s]+>"
_MAX_ANCHORS = 64
_MAX_REPEATED = 2
"""Classes between two markers: a header has 1,024 characters, and trying takes their square."""


def of_checkpoint(checkpoint: Checkpoint) -> MessageFormat:
    """The format that `checkpoint` describes.

    Raises:
        RenderError: it describes none, or one that cannot be read here.
    """
    template = as_object(checkpoint.settings.get("response_template"))
    if template is None:
        raise RenderError(
            "the format `hf` is what a model's tokenizer_config.json describes as its"
            " `response_template`, and this model's has none: name another format"
        )
    if template.get("version", 1) != 1:
        raise _refusal("version", "only 1 is known")
    given = as_object(template.get("fields")) or {}
    fields = {name: as_object(each) or {} for name, each in given.items()}
    if not fields or not fields.keys() <= set(_FIELDS):
        raise _refusal("fields", f"they are some of {', '.join(_FIELDS)}")
    thinking = [fields[name] for name in _THINKING if name in fields]
    if len(thinking) > 1:
        raise _refusal("fields", "more than one is reasoning")
    return _Builder(checkpoint.tokens).format(
        thinking[0] if thinking else None, fields.get("content"), fields.get(_CALLS)
    )


class _Way(NamedTuple):
    """From a marker on: text that `pattern` matches, up to `end`, leads to `target`."""

    pattern: str
    end: str
    target: str


class _Calls(NamedTuple):
    """How calls are written. `name` and `call_id` are groups of their opener, if they are there;
    otherwise `shape` has them."""

    shape: JsonCall = JsonCall(arguments=("arguments", "parameters"))
    name: str = ""
    call_id: str = ""


class _Builder:
    def __init__(self, tokens: Collection[str]) -> None:
        """`tokens`: texts that may be one token. Markers are cut at them, and at tags."""
        found = sorted(map(re.escape, tokens), key=len, reverse=True)
        self._token = re.compile("|".join([*found, _TAG]))
        self._states: dict[str, State] = {}
        self._ways: dict[str, list[_Way]] = {}
        self._home = _BETWEEN
        self._used_tokens: set[str] = set()

    def format(
        self,
        thinking: Mapping[str, Any] | None,
        content: Mapping[str, Any] | None,
        calls: Mapping[str, Any] | None,
    ) -> MessageFormat:
        """The format of these fields."""
        prompt_ends: dict[str, str] = {}
        if content is not None and not _has(content, "open"):
            self._home = ANSWER
        openers: dict[str, str] = {}
        if calls is not None:
            openers |= self._call_states(calls)
        for name, field, state in (
            ("thinking", thinking, REASONING),
            ("content", content, ANSWER),
        ):
            if field is None:
                continue
            if field.get("content", "text") != "text" or field.get("transform") is not None:
                raise _refusal(f"fields.{name}.content", "it is read as text only")
            for parts in self._anchors(name, field, "open"):
                openers |= self._lead(name, _unnamed(parts), state)
                if not any(isinstance(part, Words) for part in parts):
                    prompt_ends["".join(part for part in parts if isinstance(part, str))] = state
            closers = self._closers(name, field, self._home)
            if state == REASONING:
                prompt_ends |= dict.fromkeys(closers, self._home)
            self._states[state] = Said(on=closers, is_reasoning=state == REASONING)
        if self._home == ANSWER:
            answer = self._states[ANSWER]
            assert isinstance(answer, Said)
            self._states[ANSWER] = Said(on={**answer.on, **openers})
        else:
            self._states[_BETWEEN] = Gap(on=openers)
            self._states.setdefault(ANSWER, Said(on=openers))
        self._states.setdefault(REASONING, Said(on=openers, is_reasoning=True))
        return MessageFormat(
            self._states, self._home, prompt_ends, tokens=tuple(sorted(self._used_tokens))
        )

    def _call_states(self, field: Mapping[str, Any]) -> dict[str, str]:
        """Adds the states of calls; returns what leads to them."""
        where = f"fields.{_CALLS}"
        calls = _written(field)
        openers = self._anchors(_CALLS, field, "open")
        if not openers:
            raise _refusal(where, "it has no opener")
        closers = self._closers(_CALLS, field, self._home)
        kind = field.get("content", "text")
        ends_with_words = any(isinstance(parts[-1], Words) for parts in openers)
        arguments = as_object(field.get("content_args")) or {}
        then = None if closers else self._home
        if kind == "json":
            reader = _json_reader(arguments, calls)
            if isinstance(reader, PairsShape):
                self._used_tokens.add(reader.quote)
            self._states["call"] = Body(
                reader, closers, then, keeps_marker=ends_with_words, in_call=bool(calls.name)
            )
        elif not calls.name or not closers:
            raise _refusal(where, "calls that are no JSON have their names in the opener")
        elif kind == "kv-lines":
            between, colon = arguments.get("line_sep", "\n"), arguments.get("kv_sep", ":")
            if not (isinstance(between, str) and between and isinstance(colon, str) and colon):
                raise _refusal(f"{where}.content_args", "line_sep and kv_sep are texts")
            self._states["call"] = Body(LinePairs(between, colon), closers, in_call=True)
        elif kind == "xml-inline":
            self._element_states(f"{where}.content_args", arguments, closers)
        else:
            raise _refusal(f"{where}.content", "calls are json, xml-inline or kv-lines")
        if ends_with_words:
            if kind != "json":
                raise _refusal(f"{where}.open_pattern", "it has to end with text")
            openers = [(*p, "{") if isinstance(p[-1], Words) else p for p in openers]
        groups = {calls.name: "name", calls.call_id: "id"}
        found: dict[str, str] = {}
        for parts in openers:
            named = _renamed(parts, groups)
            if calls.name and not any(isinstance(p, Words) and p.name == "name" for p in named):
                raise _refusal(f"{where}.open_pattern", f"it has no group {calls.name!r}")
            found |= self._lead(_CALLS, named, "call")
        return found

    def _element_states(
        self, where: str, arguments: Mapping[str, Any], closers: dict[str, str]
    ) -> None:
        """Adds the states of arguments that are elements."""
        pattern = arguments.get("tag_pattern")
        found = anchors(where, pattern) if isinstance(pattern, str) else []
        words = [
            [at for at, part in enumerate(parts) if isinstance(part, Words)] for parts in found
        ]
        if len(found) != 1 or [found[0][at] for at in words[0]] != [
            Words(part.pattern, name)
            for at, name in zip(words[0], ("key", "value"), strict=False)
            if isinstance(part := found[0][at], Words)
        ]:
            raise _refusal(
                f"{where}.tag_pattern", "it has one group `key` and one `value` behind it"
            )
        (parts,), ((key, value),) = found, words
        before, middle, behind = parts[:key], parts[key + 1 : value], parts[value + 1 :]
        if not (before and middle and behind):
            raise _refusal(f"{where}.tag_pattern", "there is no text around its groups")
        trims = any(isinstance(part, Space) for part in (middle[-1], behind[0]))
        opener = self._lead(where, _stripped(where, before), "key", in_call=True)
        self._states["call"] = Gap(on={**opener, **closers}, in_call=True)
        self._states["key"] = Header(
            r"\s*(?P<key>.*?)\s*",
            on=self._lead(where, _stripped(where, middle), "value", in_call=True),
            in_call=True,
        )
        self._states["value"] = Value(
            on=self._lead(where, _stripped(where, behind), "call", in_call=True),
            trim="space" if trims else "none",
        )

    def _anchors(self, name: str, field: Mapping[str, Any], key: str) -> list[Sequence]:
        """What opens or closes a field, without white space around it; the output's end aside."""
        where = f"fields.{name}.{key}"
        texts, pattern = field.get(key), field.get(f"{key}_pattern")
        if isinstance(pattern, str):
            found = anchors(f"response_template.{where}_pattern", pattern)
        else:
            given = as_array(texts) if as_array(texts) is not None else [texts]
            literal = [each for each in given or () if isinstance(each, str) and each.strip()]
            if texts is not None and len(literal) != len(given or ()):
                raise _refusal(where, "it is a text, or a list of texts")
            found = [(text,) for text in literal]
        if len(found) > _MAX_ANCHORS:
            raise _refusal(where, f"there are more than {_MAX_ANCHORS}")
        return [
            _stripped(where, parts)
            for parts in found
            if not all(isinstance(part, End | Space) for part in parts)
        ]

    def _closers(self, name: str, field: Mapping[str, Any], target: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for parts in self._anchors(name, field, "close"):
            found |= self._lead(name, _unnamed(parts), target)
        return found

    def _lead(
        self, name: str, parts: Sequence, target: str, *, in_call: bool = False
    ) -> dict[str, str]:
        """Adds the states that lead from the first marker of `parts` to `target`; returns that
        marker, and where it leads."""
        items = [cut for part in parts for cut in self._cut(part)]
        first = items[0]
        assert isinstance(first, str)
        rest = items[1:]
        if not rest:
            return {first: target}
        texts = [at for at, item in enumerate(rest) if isinstance(item, str)]
        tokens = [at for at in texts if self._token.fullmatch(str(rest[at]))]
        if not texts:
            raise _refusal(f"fields.{name}", "a pattern has to end with text")
        at = tokens[-1] if tokens else texts[-1]
        between = rest[:at]
        if sum(isinstance(item, Words) for item in between) > _MAX_REPEATED:
            raise _refusal(f"fields.{name}", f"a pattern repeats more than {_MAX_REPEATED} classes")
        has_name = any(isinstance(item, Words) and item.name == "name" for item in between)
        behind = self._lead(name, tuple(rest[at:]), target, in_call=in_call or has_name)
        ((end, next_state),) = behind.items()
        if all(isinstance(item, Space) for item in between):
            state = f"{first} {end}" + (" in call" if in_call else "")
            self._add(name, state, Gap(on={end: next_state}, in_call=in_call))
            return {first: state}
        pattern = "".join(re.escape(p) if isinstance(p, str) else p.source for p in between)
        if in_call:
            state = f"{first} {pattern} {end}"
            self._add(name, state, Header(pattern, on={end: next_state}, in_call=True))
            return {first: state}
        state = f"from {first}"
        ways = self._ways.setdefault(first, [])
        ways.append(_Way(pattern, end, next_state))
        if any(way.end != end for way in ways):
            raise _refusal(f"fields.{name}", f"{first!r} begins two fields that end differently")
        self._states[state] = Fork(end, tuple((way.pattern, way.target) for way in ways))
        return {first: state}

    def _add(self, name: str, state: str, added: State) -> None:
        if self._states.setdefault(state, added) != added:
            raise _refusal(f"fields.{name}", f"{state!r} leads to two places")

    def _cut(self, part: Part) -> list[Part]:
        """A text as tokens, and what is between them."""
        if not isinstance(part, str):
            return [part]
        cut: list[Part] = []
        at = 0
        for found in self._token.finditer(part):
            cut += [part[at : found.start()], found[0]]
            self._used_tokens.add(found[0])
            at = found.end()
        return [each for each in (*cut, part[at:]) if each]


def _stripped(where: str, parts: Sequence) -> Sequence:
    """Without white space at either end, which belongs to no field, and the output's end."""
    kept = list(parts)
    while kept and isinstance(kept[-1], Space | End):
        kept.pop()
    while kept and isinstance(kept[0], Space):
        kept.pop(0)
    if not kept or not isinstance(kept[0], str) or not kept[0].strip():
        raise _refusal(where, "it has to begin with text")
    kept[0] = kept[0].lstrip()
    if isinstance(kept[-1], str):
        kept[-1] = kept[-1].rstrip() or kept[-1]
    return tuple(kept)


def _has(field: Mapping[str, Any], key: str) -> bool:
    return key in field or f"{key}_pattern" in field


def _renamed(parts: Sequence, groups: Mapping[str, str]) -> Sequence:
    """With the groups' names in this program, or without a name for those that have none."""
    return tuple(
        Words(part.pattern, groups.get(part.name, "")) if isinstance(part, Words) else part
        for part in parts
    )


def _unnamed(parts: Sequence) -> Sequence:
    return _renamed(parts, {})


def _written(field: Mapping[str, Any]) -> _Calls:
    """What the field's transform says of its calls."""
    where = f"fields.{_CALLS}.transform"
    transform = field.get("transform")
    outer = as_object(transform) or {}
    inner = outer.get("function", transform)
    if inner is None or inner == "{content}":
        return _Calls()
    call = as_object(inner) or {}
    paths: dict[str, list[str]] = {}
    each = field.get("transform_each") is True
    for key, value in (
        ("name", call.get("name")),
        ("arguments", call.get("arguments")),
        ("id", outer.get("id")),
    ):
        found = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
        if found is None and (key != "id" or value is not None):
            raise _refusal(f"{where}", f"{key} is no placeholder")
        if found is not None:
            paths[key] = [*(["content"] if each else []), *found[1].split(".")]
    match paths:
        case {"name": [name], "arguments": ["content"], **others}:
            match others.get("id", [""]):
                case [call_id]:
                    return _Calls(JsonCall(), name, call_id)
                case _:
                    pass
        case {"name": ["content", name], "arguments": ["content", arguments], **others}:
            match others.get("id"):
                case None:
                    return _Calls(JsonCall((name,), (arguments,)))
                case ["content", call_id]:
                    return _Calls(JsonCall((name,), (arguments,), (call_id,)))
                case _:
                    pass
        case _:
            pass
    raise _refusal(where, "name and arguments come both from the content, or the name from a group")


def _json_reader(
    arguments: Mapping[str, Any], calls: _Calls
) -> type[JsonArguments] | JsonCall | PairsShape:
    """A reader of calls, or of the arguments of one whose name is known."""
    quotes = [as_array(each) or [] for each in as_array(arguments.get("string_delims")) or []]
    if not quotes and not arguments.get("unquoted_keys"):
        return JsonArguments if calls.name else calls.shape
    match quotes:
        case [[str(begin), str(end)]] if begin == end and begin and calls.name:
            return PairsShape(begin)
        case [] if calls.name:
            return PairsShape('"')
        case _:
            raise _refusal(f"fields.{_CALLS}.content_args", "strings have one delimiter")


def _refusal(where: str, why: str) -> RenderError:
    return RenderError(f"the model's response_template cannot be used: {where}: {why}")
