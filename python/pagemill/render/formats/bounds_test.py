"""Whatever a model writes, and whatever schemas a client sends: bounded memory, linear time, no
exception."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from pagemill.render.events import CallEnd, Event, Message, Piece
from pagemill.render.formats.format import MAX_BODY_CHARS, MessageFormat, ReasoningFormat
from pagemill.render.formats.format import ToolFormat as Tools
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.formats.table import REASONING_FORMATS, TOOL_FORMATS, load_format
from pagemill.render.output_machine import Formats
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.render.testing.wire_formats import CHECKPOINT

PATHS = sorted({*TOOL_FORMATS.values(), *REASONING_FORMATS.values()})
PARTS = ["<", " ", "\n", "\\", '"', "'", "{", "[", "(", "a", ":", ",", '{"', "x=", "]<]"]
BEGINNINGS = ["", '{"name": "f", "arguments": {"a": "', "f(a='", "f{a:", "f>", "f", '"f">', " to="]


def parser_of(path: str, options: ParserOptions) -> OutputParser:
    kind = load_format(path, CHECKPOINT)
    match kind:
        case MessageFormat():
            formats = Formats(messages=kind)
        case Tools():
            formats = Formats(THINK, kind)
        case ReasoningFormat():
            formats = Formats(kind)
    return OutputParser(formats, options)


def openers_of(path: str) -> list[str]:
    """Texts that lead into the format's states."""
    kind = load_format(path, CHECKPOINT)
    markers = sorted(kind.markers)
    opened = [*kind.openers, *kind.starts] if isinstance(kind, Tools) else markers
    return ["", *opened, *(a + b for a in opened[:3] for b in markers)]


def kept_chars(value: Any, depth: int = 0) -> int:
    """Characters in the strings that an object holds."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(kept_chars(each, depth) for each in value)
    if depth > 4 or not type(value).__module__.startswith("pagemill.render"):
        return 0
    names = getattr(type(value), "__slots__", None) or vars(value)
    skipped = {"events", "_machine", "_node", "_state"}
    return sum(kept_chars(getattr(value, n, None), depth + 1) for n in names if n not in skipped)


@pytest.mark.parametrize("path", PATHS)
def test_what_is_kept_is_bounded_and_time_is_linear(path: str) -> None:
    rng = random.Random(path)
    beginnings = [opener + text for opener in openers_of(path) for text in BEGINNINGS]
    for _ in range(20):
        beginning, part = (
            rng.choice(beginnings),
            rng.choice([*PARTS, *load_format(path, CHECKPOINT).markers]),
        )
        begun = time.thread_time()
        parser = parser_of(path, ParserOptions(reasoning=True, tools=True))
        parser.push(Piece(beginning, 5, False), [])
        for _ in range(2000):
            parser.push(Piece(part, 5, False), [])
        parser.push(Piece(part * (2 * MAX_BODY_CHARS // len(part)), 5, False), [])
        assert kept_chars(parser) < 3 * MAX_BODY_CHARS, (beginning, part)
        parser.finish([])
        # 2,000 pieces and 130,000 characters take 20 ms; a quadratic time is seconds.
        assert time.thread_time() - begun < 2, (beginning, part)


def junk(rng: random.Random, depth: int = 0) -> Any:
    scalars = [None, 5, -1.5, True, "string", "integer", "object", "array", "x", []]
    if depth > 3 or rng.random() < 0.4:
        return rng.choice(scalars)
    if rng.random() < 0.3:
        return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = ["type", "properties", "items", "anyOf", "oneOf", "enum", "k", "x"]
    return {key: junk(rng, depth + 1) for key in rng.sample(keys, rng.randrange(5))}


@pytest.mark.parametrize("path", PATHS)
def test_nothing_raises_and_complete_arguments_are_json(path: str) -> None:
    rng = random.Random(path)
    fragments = [
        *sorted(load_format(path, CHECKPOINT).markers),
        *PARTS,
        *BEGINNINGS,
        "}",
        "]",
        ")",
        "k",
        "1",
    ]
    fragments += ["9" * 5000, "NaN", "Infinity", "1e999", "\ud800", "[" * 3000, "{'a':" * 500]
    writes_json = "json" in path or "message" in path
    for _ in range(150):
        schemas: dict[str, Any] = {"f": junk(rng), "k": junk(rng)}
        parser = parser_of(path, ParserOptions(reasoning=True, tools=True, schemas=schemas))
        events: list[Event] = []
        for fragment in rng.choices(fragments, k=rng.randrange(1, 16)):
            parser.push(Piece(fragment, 5, False), events)
        parser.finish(events)
        message = Message()
        for event in events:
            message.add(event)
        ends = [event.complete for event in events if type(event) is CallEnd]
        assert len(ends) == len(message.calls)
        for call, complete in zip(message.calls, ends, strict=True):
            if complete and not writes_json:
                assert isinstance(json.loads(call.arguments), dict), call
