"""Each tool format reads back what its models write, however it was portioned."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.events import CallEnd, Event, Message, Piece
from pagemill.render.formats.format import MessageFormat, ToolFormat
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.formats.table import TOOL_FORMATS, load_format
from pagemill.render.formats.typed_values import as_json, parameter, type_names
from pagemill.render.output_machine import Formats
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.render.testing.format_reference import reference
from pagemill.render.testing.wire_formats import CHECKPOINT, WRITERS, ToolCall

NUM_CONVERSATIONS = int(os.environ.get("PAGEMILL_TEST_CONVERSATIONS", "6"))
# What surrounds reasoning and an answer in formats of messages.
MESSAGES = {
    "message_formats:HARMONY": (
        "<|channel|>analysis<|message|>{}<|end|>",
        "<|start|>assistant<|channel|>commentary<|message|>{}<|end|>",
    ),
    "message_formats:INKLING": (
        "<|message_model|><|content_thinking|>{}<|end_message|>",
        "<|message_model|><|content_text|>{}<|end_message|>",
    ),
    "message_formats:KIMI_K3": (
        "<|open|>think<|sep|>{}<|close|>think<|sep|>",
        "<|open|>response<|sep|>{}<|close|>response<|sep|>",
    ),
    "message_formats:MUSE_GLIMMER": (
        " to=self<|message|>{}<|eom|>",
        "<|start|>assistant to=user<|message|>{}<|eom|>",
    ),
}
ONE_CALL = {"json_formats:GIGACHAT3"}
FLAT = {"element_formats:MINIMAX_M3"}  # writes nothing for empty values of all types
WORDS = ["Paris", "naïve", "日本", "a b", "x < y > z", "{", "}", "it's", '"quoted"', "\\n", "\t"]
WORDS += ["two\nlines", "[1, 2]", "12", "true", "null", "</b>", "<tool", "'", "€", "a=b", "#", "🙂"]
NAMES = ["get_weather", "now", "search_2", "weather.get"]
KEYS = ["city", "days", "unit_of_it", "x"]


def string(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(1, 5)))


def value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 2 else 6):
        case 0 | 1 | 2:
            return string(rng)
        case 3:
            return rng.randrange(-1000, 1000)
        case 4:
            return rng.choice([0.5, -2.25, 1e-3])
        case 5:
            return rng.choice([True, False, None])
        case 6:
            return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
        case _:
            return {key: value(rng, depth + 1) for key in rng.sample(KEYS, rng.randrange(3))}


def schema(arguments: dict[str, Any]) -> dict[str, Any]:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number"}
    kinds |= {list: "array", dict: "object", type(None): "null"}
    return {"properties": {key: {"type": kinds[type(v)]} for key, v in arguments.items()}}


def conversation(path: str, rng: random.Random) -> tuple[str, list[ToolCall]]:
    names = rng.sample(NAMES, 1 if path in ONE_CALL else rng.randrange(1, 4))
    depth = 2 if path in FLAT else 0
    calls = [
        ToolCall(name, {key: value(rng, depth) for key in rng.sample(KEYS, rng.randrange(4))})
        for name in names
    ]
    return WRITERS[path](calls), calls


def parse(
    path: str, parts: list[Piece], options: ParserOptions, ids: dict[int, str] | None = None
) -> tuple[str, str, list[tuple[str, Any]]]:
    message, events = Message(), parsed(path, parts, options, ids)
    assert all(event.complete for event in events if type(event) is CallEnd)
    for event in events:
        message.add(event)
    calls = [(call.name, json.loads(call.arguments)) for call in message.calls]
    return message.text, message.reasoning, calls


def parsed(
    path: str, parts: list[Piece], options: ParserOptions, ids: dict[int, str] | None = None
) -> list[Event]:
    kind = load_format(path, CHECKPOINT)
    if isinstance(kind, MessageFormat):
        formats = Formats(messages=kind, marker_ids=ids or {})
    else:
        assert isinstance(kind, ToolFormat)
        formats = Formats(THINK, kind, ids or {})
    parser = OutputParser(formats, options)
    events: list[Event] = []
    for part in parts:
        parser.push(part, events)
    parser.finish(events)
    return events


def options_for(calls: list[ToolCall]) -> ParserOptions:
    schemas = {call.name: schema(call.arguments) for call in calls}
    return ParserOptions(reasoning=True, tools=True, schemas=schemas)


def pieces(*parts: str) -> list[Piece]:
    return [Piece(part, 5, False) for part in parts]


def test_the_page_of_formats_is_up_to_date() -> None:
    stored = (Path(__file__).parents[4] / "docs/output_formats.md").read_text(encoding="utf-8")
    assert stored == reference(), "run `python -m pagemill.render.testing.format_reference`"


def test_every_format_has_a_writer() -> None:
    assert set(WRITERS) == set(TOOL_FORMATS.values())


@pytest.mark.parametrize("path", sorted(WRITERS))
def test_what_is_written_is_read_at_every_split(path: str) -> None:
    rng = random.Random(path)
    for _ in range(NUM_CONVERSATIONS):
        output, calls = conversation(path, rng)
        options = options_for(calls)
        want = [(call.name, call.arguments) for call in calls]
        thinks, says = MESSAGES.get(path, ("<think>\n{}\n</think>\n\n", "{}\n\n"))
        is_first = bool(
            getattr(load_format(path, CHECKPOINT), "starts", {})
        ) and not output.startswith("<")
        before = "" if is_first else rng.choice(["", "I look.", "a < b [x"])
        thoughts = rng.choice(["", "Hm, so.\nYes."])
        whole = thinks.format(thoughts) if thoughts else ""
        whole += (says.format(before) if before else "") + output
        for at in range(len(whole) + 1):
            got = parse(path, pieces(whole[:at], whole[at:]), options)
            assert got == (before, thoughts, want), (whole, at)
        assert parse(path, pieces(*whole), options) == (before, thoughts, want), whole


def possible_tokens(path: str) -> list[str]:
    """Markers that a vocabulary may have as tokens, the shortest first."""
    found = [
        m
        for m in load_format(path, CHECKPOINT).markers
        if m[0] in "<[" and m[-1] in ">]" and len(m) > 2
    ]
    return sorted(found, key=len)


@pytest.mark.parametrize("path", sorted(filter(possible_tokens, WRITERS)))
def test_markers_that_are_tokens(path: str) -> None:
    rng = random.Random(path)
    kind = load_format(path, CHECKPOINT)
    markers = possible_tokens(path)
    ids = {1000 + at: marker for at, marker in enumerate(markers)}
    by_text = {marker: index for index, marker in ids.items()}
    pattern = re.compile("(" + "|".join(map(re.escape, reversed(markers))) + ")")
    for _ in range(NUM_CONVERSATIONS):
        output, calls = conversation(path, rng)
        parts: list[Piece] = []
        for part in filter(None, pattern.split(output)):
            if part in by_text:
                parts.append(Piece("", by_text[part], True))
            else:
                parts += pieces(*part)
        want = [(call.name, call.arguments) for call in calls]
        assert parse(path, parts, options_for(calls), ids) == ("", "", want), output
    if (
        isinstance(kind, ToolFormat)
        and not kind.starts
        and all(opener in by_text for opener in kind.openers)
    ):  # the same characters, but not those tokens, are a quotation
        output, calls = conversation(path, rng)
        assert parse(path, pieces(*output), options_for(calls), ids) == (output, "", [])


@pytest.mark.parametrize("path", sorted(WRITERS))
def test_a_cut_call_is_reported_and_never_another_one(path: str) -> None:
    rng = random.Random(path)
    output, calls = conversation(path, rng)
    for at in range(len(output)):
        events = parsed(path, pieces(output[:at]), options_for(calls))
        message = Message()
        for event in events:
            message.add(event)
        ends = [event.complete for event in events if type(event) is CallEnd]
        assert len(ends) == len(message.calls) <= len(calls)
        assert all(ends[:-1])
        for call, end, want in zip(message.calls, ends, calls, strict=False):
            assert call.name == want.name
            if end:
                assert json.loads(call.arguments) == want.arguments


@pytest.mark.parametrize("path", sorted(WRITERS))
def test_random_fragments_do_not_depend_on_portions(path: str) -> None:
    rng = random.Random(path)
    fragments = [
        *sorted(load_format(path, CHECKPOINT).markers),
        '{"name": "f", "arguments": {',
        '"',
        "}",
        "ab",
        "<",
        "\n",
    ]
    fragments += [" ", "f", "[", "]", "<think>", "</think>", "f(a=1)", "k"]
    options = ParserOptions(reasoning=True, tools=True)
    for _ in range(20 * NUM_CONVERSATIONS):
        output = "".join(rng.choices(fragments, k=rng.randrange(1, 14)))
        folds = []
        for parts in (pieces(output), pieces(*output)):
            message = Message()
            for event in parsed(path, parts, options):
                message.add(event)
            calls = [(call.name, call.arguments) for call in message.calls]
            folds.append((message.text, message.reasoning, calls))
        assert folds[0] == folds[1], output


def test_nested_elements() -> None:
    path = "element_formats:MINIMAX_M3"
    arguments = {"at": {"x": 1, "tags": ["a", "b"]}, "list": [], "same": {"k": [1, 2]}, "t": "5"}
    output = WRITERS[path]([ToolCall("f", arguments)])
    schemas = {"f": {"properties": {"list": {"type": "array"}, "t": {"type": "string"}}}}
    options = ParserOptions(tools=True, schemas=schemas)
    for parts in (pieces(output), pieces(*output)):
        assert parse(path, parts, options) == ("", "", [("f", arguments)])
    # An element that is closed by another name is no call's argument.
    broken = output.replace("</at>", "</ta>")
    (end,) = [e for e in parsed(path, pieces(broken), options) if type(e) is CallEnd]
    assert not end.complete


def test_a_parameter_that_holds_all_arguments() -> None:
    path = "element_formats:DEEPSEEK_V4"
    inner = {"city": "Paris", "days": 2}
    known = {"properties": {"city": {"type": "string"}, "days": {}}, "required": ["city"]}
    for key in ("arguments", "input"):
        for given in (inner, json.dumps(inner)):
            output = WRITERS[path]([ToolCall("f", {key: given})])
            for want, parameters in (
                (inner, known),
                ({key: given}, {"properties": {**known["properties"], key: {}}}),
                ({key: given}, {"properties": {"city": {}}}),  # `days` is no parameter
                ({key: given}, {**known, "required": ["city", "unit"]}),
                ({key: given}, None),
            ):
                schemas = {"f": parameters} if parameters is not None else {}
                options = ParserOptions(tools=True, schemas=schemas)
                for parts in (pieces(output), pieces(*output)):
                    assert parse(path, parts, options) == ("", "", [("f", want)])
    options = ParserOptions(tools=True, schemas={"f": known})
    for arguments in (
        {"arguments": inner, "city": "x"},
        {"arguments": "x"},
        {"arguments": [inner]},
    ):
        output = WRITERS[path]([ToolCall("f", arguments)])
        assert parse(path, pieces(output), options) == ("", "", [("f", arguments)])


@pytest.mark.parametrize(
    ("text", "types", "want"),
    [
        ("5", ["integer"], 5),
        ("5.0", ["integer"], 5),
        ("5.5", ["integer"], "5.5"),
        ("5.5", ["number"], 5.5),
        ("nan", ["number"], "nan"),
        ("TRUE", ["boolean"], True),
        ("1", ["boolean"], True),
        ("yes", ["boolean"], "yes"),
        ("null", ["string", "null"], None),
        ("null", ["string"], "null"),
        ("[1]", ["array"], [1]),
        ("[1]", ["object"], "[1]"),
        ('{"a": 1}', ["object"], {"a": 1}),
        ("12", [], 12),
        ("twelve", [], "twelve"),
        ("1_000", ["integer"], "1_000"),
    ],
)
def test_values_have_the_type_of_the_schema(text: str, types: list[str], want: Any) -> None:
    assert json.loads(as_json(text, frozenset(types))) == want


def test_types_of_schemas() -> None:
    assert type_names({"type": ["string", "null"]}) == {"string", "null"}
    assert type_names({"anyOf": [{"type": "integer"}, {"type": "null"}]}) == {"integer", "null"}
    assert type_names({"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]}) == frozenset()
    assert type_names({"enum": ["a", "b"]}) == {"string"}
    assert type_names({"enum": [1]}) == type_names({}) == type_names(None) == frozenset()


def test_parameters_that_refer_to_definitions() -> None:
    unit = {"enum": ["C", "F"]}
    references = {"unit": {"$ref": "#/$defs/unit"}, "self": {"$ref": "#/properties/self"}}
    schema = {"properties": {**references, "none": {"$ref": "#/x/y"}}, "$defs": {"unit": unit}}
    assert parameter(schema, "unit") == unit
    assert parameter(schema, "none") is None
    assert parameter(schema, "self") == references["self"]
