"""Whatever a model writes under a grammar of calls, its format reads back as valid calls."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pagemill.render.events import CallEnd, Event, Message, Piece
from pagemill.render.formats.format import KEY, MessageFormat, ToolFormat
from pagemill.render.formats.table import TOOL_FORMATS, load_format
from pagemill.render.output_machine import Formats
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.render.testing.wire_formats import CHECKPOINT
from pagemill.server.grammar.call_grammar import (
    calls_from_opener,
    calls_from_text,
    calls_or_json,
    can_spell,
    json_answer,
    opener_token,
    required_calls,
)
from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.matcher import GrammarMatcher
from pagemill.structured.vocabulary import Vocabulary

EOS, VOCAB_SIZE = 256, 512
SCHEMAS: dict[str, dict[str, Any] | None] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "days": {"type": "integer", "minimum": 0, "maximum": 9},
            "unit": {"enum": ["C", "degrees F"]},
            "at": {"$ref": "#/$defs/at"},
        },
        "required": ["city", "at"],
        "$defs": {
            "at": {
                "type": "object",
                "properties": {"x": {"type": "boolean"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
    "now": None,
    "note": {
        "type": "object",
        "properties": {
            "text": {"type": ["string", "null"], "maxLength": 9},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        },
    },
}


def spelled_formats() -> list[str]:
    kinds = {path: load_format(path, CHECKPOINT) for path in TOOL_FORMATS.values()}
    return [
        path
        for path, kind in kinds.items()
        if isinstance(kind, ToolFormat | MessageFormat) and kind.spelling is not None
    ]


def formats_of(path: str, *, has_tokens: bool) -> Formats:
    kind = load_format(path, CHECKPOINT)
    assert isinstance(kind, ToolFormat | MessageFormat)
    markers = sorted(m for m in kind.markers if m[0] in "<[" and m[-1] in ">]" and len(m) > 2)
    ids = {EOS + 1 + at: marker for at, marker in enumerate(markers)} if has_tokens else {}
    if isinstance(kind, MessageFormat):
        return Formats(messages=kind, marker_ids=ids)
    return Formats(tools=kind, marker_ids=ids)


class Tokens:
    """Bytes, and behind them the markers of a format. Its own `token_bytes`."""

    vocab_size = VOCAB_SIZE

    def __init__(self, marker_ids: Mapping[int, str]) -> None:
        self._markers = marker_ids

    @property
    def token_bytes(self) -> Tokens:
        return self

    def __getitem__(self, token_id: int) -> bytes:
        if token_id < EOS:
            return bytes([token_id])
        return b"<eos>" if token_id == EOS else self._markers.get(token_id, "").encode()

    def is_special(self, token_id: int) -> bool:
        return token_id == EOS

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        return list(text.encode())


def matcher_of(formats: Formats, grammar: Grammar) -> GrammarMatcher:
    tokens = Tokens(formats.marker_ids)
    vocabulary = Vocabulary(tokens, VOCAB_SIZE, (EOS,), frozenset(formats.marker_ids))
    return GrammarCompiler(lambda: vocabulary).factory(grammar)()


def allowed(matcher: GrammarMatcher) -> list[int]:
    mask = np.zeros(VOCAB_SIZE // 32, np.uint32)
    matcher.fill_mask(mask)
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def walk(
    matcher: GrammarMatcher, formats: Formats, rng: random.Random, *, stops: bool = False
) -> list[int]:
    """A random output; one that `stops` ends as soon as it may."""
    written: list[int] = []
    ending: list[int] = []
    patience = rng.randrange(200)
    while len(written) < 2000:
        tokens = allowed(matcher)
        assert tokens, written
        is_impatient = len(written) > patience
        if EOS in tokens and (stops or is_impatient or rng.random() < 0.3):
            return written
        if len(tokens) > 20 and not ending and rng.random() < (0.8 if is_impatient else 0.1):
            ending = end_of_text(formats, written)
        if ending and ending[0] in tokens:
            token = ending.pop(0)
        elif len(tokens) > 20:
            token = rng.choice(list(b'aB 5\n<"'))
            ending = []
        else:
            token = rng.choice(tokens)
        if token != EOS and token in tokens:
            assert matcher.accept(token)
            written.append(token)
    raise AssertionError(f"no end: {bytes(t for t in written if t < 256)!r}")


def end_of_text(formats: Formats, written: Sequence[int]) -> list[int]:
    """What ends a value that is plain text, or a string, or reasoning."""
    assert formats.spelling is not None
    closer = formats.spelling.thought[1]
    if closer and not set(b"{") & set(written):
        first = next((i for i, m in formats.marker_ids.items() if closer.startswith(m)), None)
        return list(closer.encode()) if first is None else [first]
    values = formats.spelling.parameters
    if values is None or values.quotes:
        return list(b'"')
    ids = {marker: index for index, marker in formats.marker_ids.items()}
    end = values.after_value.partition(KEY)[0]
    marker = next((m for m in ids if m in end), "")
    return [ids[marker]] if marker else list(end.encode())


def read(formats: Formats, token_ids: Sequence[int]) -> tuple[Message, list[Event]]:
    schemas = {name: schema for name, schema in SCHEMAS.items() if schema is not None}
    parser = OutputParser(formats, ParserOptions(tools=True, schemas=schemas))
    events: list[Event] = []
    text = bytearray()
    for token in token_ids:
        if token < 256:
            text.append(token)
            continue
        parser.push(Piece(text.decode(), 5, False), events)
        parser.push(Piece("", token, True), events)
        text.clear()
    parser.push(Piece(text.decode(), 5, False), events)
    parser.finish(events)
    message = Message()
    for event in events:
        message.add(event)
    return message, events


def opener_text(formats: Formats) -> str:
    """What a call begins with, in any text."""
    assert formats.tools is not None and formats.spelling is not None
    beginning = formats.spelling.begin + formats.spelling.before_name
    return max((o for o in formats.tools.openers if beginning.startswith(o)), key=len)


def check_calls(message: Message, events: Sequence[Event]) -> None:
    assert all(event.complete for event in events if type(event) is CallEnd)
    for call in message.calls:
        assert is_valid(call.name, json.loads(call.arguments)), call


def is_valid(name: str, arguments: Any) -> bool:
    """Whether arguments are what `SCHEMAS` says; plain text may be longer."""
    match name, arguments:
        case "now", {}:
            return not arguments
        case "get_weather", {"city": str(), "at": {"x": bool()}}:
            days, unit = arguments.get("days", 0), arguments.get("unit", "C")
            is_known = arguments.keys() <= {"city", "at", "days", "unit"}
            return is_known and days in range(10) and unit in ("C", "degrees F")
        case "note", {**others}:
            text, tags = others.pop("text", None), others.pop("tags", [])
            is_typed = text is None or isinstance(text, str)
            return is_typed and len(tags) <= 2 and set(tags) <= {"a", "b"} and not others
        case _:
            return False


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("path", spelled_formats())
def test_required_calls_are_read_back(path: str, has_tokens: bool) -> None:
    rng = random.Random(path)
    formats = formats_of(path, has_tokens=has_tokens)
    assert can_spell(formats)
    for is_single in (False, True):
        grammar = required_calls(formats, SCHEMAS, is_single=is_single, ends=[EOS])
        for _ in range(5):
            output = walk(matcher_of(formats, grammar), formats, rng)
            message, events = read(formats, output)
            assert message.calls and not message.text, output
            assert len(message.calls) == 1 or not is_single
            check_calls(message, events)


def test_an_output_may_end_with_a_line() -> None:
    formats = formats_of("json_formats:HERMES", has_tokens=True)
    matcher = matcher_of(formats, required_calls(formats, {"f": None}, is_single=False, ends=[EOS]))
    ids = {marker: index for index, marker in formats.marker_ids.items()}
    opener, closer = ids["<tool_call>"], ids["</tool_call>"]
    assert allowed(matcher) == [opener]  # nothing reasons, so nothing separates
    output = [opener, *b'\n{"name": "f", "arguments": {}}\n', closer, *b"\n"]
    assert all(map(matcher.accept, output))
    assert EOS in allowed(matcher) and opener in allowed(matcher)
    message, _ = read(formats, output)
    assert not message.text and len(message.calls) == 1


@pytest.mark.parametrize("path", spelled_formats())
def test_calls_are_constrained_from_their_opener_on(path: str) -> None:
    rng = random.Random(path)
    formats = formats_of(path, has_tokens=True)
    opener = opener_token(formats)
    if opener is None or formats.tools is None:
        assert calls_from_opener(formats, SCHEMAS, is_single=False, ends=[EOS]) is None
        return
    for is_single in (False, True):
        grammar = calls_from_opener(formats, SCHEMAS, is_single=is_single, ends=[EOS])
        assert grammar is not None
        for _ in range(3):
            matcher = matcher_of(formats, grammar)
            output = [ord("h"), ord("i")]
            assert all(map(matcher.accept, output)) and EOS in allowed(matcher)
            assert matcher.accept(opener)
            output += [opener, *walk(matcher, formats, rng, stops=True)]
            message, events = read(formats, output)
            assert message.calls and message.text == "hi", output
            assert len(message.calls) == 1 or not is_single
            check_calls(message, events)


@pytest.mark.parametrize("path", spelled_formats())
def test_calls_are_constrained_where_openers_are_text(path: str) -> None:
    rng = random.Random(path)
    formats = formats_of(path, has_tokens=False)
    for is_single in (False, True):
        grammar = calls_from_text(formats, SCHEMAS, is_single=is_single)
        if grammar is None:
            assert formats.tools is None or formats.tools.starts
            continue
        opener = opener_text(formats)
        for _ in range(3):
            matcher = matcher_of(formats, grammar)
            for character in "hi" + opener:
                assert EOS in allowed(matcher)
                assert all(map(matcher.accept, character.encode()))
            assert EOS not in allowed(matcher)
            output = list(b"hi" + opener.encode())
            output += walk(matcher, formats, rng, stops=True)
            message, events = read(formats, output)
            assert message.calls and message.text == "hi", output
            assert len(message.calls) == 1 or not is_single
            check_calls(message, events)


def test_text_in_front_of_an_opener_is_free() -> None:
    formats = formats_of("json_formats:HERMES", has_tokens=True)
    grammar = calls_from_opener(formats, SCHEMAS, is_single=False, ends=[EOS])
    assert grammar is not None
    matcher = matcher_of(formats, grammar)
    opener, others = opener_token(formats), set(allowed(matcher))
    assert others >= {EOS, *range(256)}
    for byte in b'I {"call} </tool_call> <tool_call>':
        assert set(allowed(matcher)) == others
        assert matcher.accept(byte)
    assert opener is not None and matcher.accept(opener)
    assert allowed(matcher) == [ord("\n")]
    matcher.rollback(1)
    assert set(allowed(matcher)) == others


@pytest.mark.parametrize(
    ("path", "tools"),
    [
        ("json_formats:HERMES", {'a"b': None}),
        ("json_formats:HERMES", {"a b": None}),
        ("element_formats:GLM45", {"f": {"properties": {"<k>": {}}}}),
        ("other_formats:PYTHONIC", {"get-weather": None}),
        ("other_formats:PYTHONIC", {"f": {"properties": {"a-b": {}}}}),
    ],
)
def test_what_a_format_cannot_spell_is_refused(path: str, tools: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="cannot be written|none of Python"):
        required_calls(formats_of(path, has_tokens=False), tools, is_single=False, ends=[EOS])


@pytest.mark.parametrize("path", ["json_formats:HERMES", "element_formats:QWEN3_CODER"])
@pytest.mark.parametrize("schema", [{"type": "object"}, {"$defs": {}}])
def test_schemas_that_say_little(path: str, schema: dict[str, Any]) -> None:
    formats = formats_of(path, has_tokens=False)
    grammar = required_calls(formats, {"f": schema}, is_single=True, ends=[EOS])
    message, events = read(formats, walk(matcher_of(formats, grammar), formats, random.Random(1)))
    assert [call.name for call in message.calls] == ["f"]
    assert all(event.complete for event in events if type(event) is CallEnd)


@pytest.mark.parametrize("has_tokens", [False, True])
def test_an_answer_in_a_message_is_json(has_tokens: bool) -> None:
    rng = random.Random(3)
    formats = formats_of("message_formats:HARMONY", has_tokens=has_tokens)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    thoughts: set[str] = set()
    for _ in range(8):
        grammar = json_answer(formats, schema, ends=[EOS])
        message, _ = read(formats, walk(matcher_of(formats, grammar), formats, rng))
        assert isinstance(json.loads(message.text)["a"], int) and not message.calls
        thoughts.add(message.reasoning)
        either = calls_or_json(formats, SCHEMAS, schema, is_single=False, ends=[EOS])
        message, events = read(formats, walk(matcher_of(formats, either), formats, rng))
        check_calls(message, events)
        assert message.calls or isinstance(json.loads(message.text)["a"], int)
    assert len(thoughts) > 2


def test_messages_are_not_constrained_from_an_opener_on() -> None:
    formats = formats_of("message_formats:HARMONY", has_tokens=True)
    assert calls_from_opener(formats, SCHEMAS, is_single=False, ends=[EOS]) is None
    assert calls_from_text(formats, SCHEMAS, is_single=False) is None
