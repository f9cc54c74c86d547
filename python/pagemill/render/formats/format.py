"""What describes a format: states, what the text of each is, and the markers that lead out of it.

    ToolFormat(
        openers={"<tool_call>": "function"},
        states={
            "function": Gap(on={"<function=": "name", "</tool_call>": ANSWER}),
            "name": Header(r"(?P<name>[^>]+)", on={">": "parameters"}),
            "parameters": Gap(on={"<parameter=": "key", "</function>": "function"}, in_call=True),
            "key": Header(r"(?P<key>[^>]+)", on={">": "value"}, in_call=True),
            "value": Value(on={"</parameter>": "parameters"}),
        },
    )

`OutputParser` runs these tables, for streams and for whole responses alike. A marker that is one
token of the model's vocabulary is that token only, so that text that looks like it is text.

A call begins when a header with a name is left, or when a `Body` finds one, and ends when a state
that is not `in_call` is reached. What was opened and turns out to be no call is text, its markers
included.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

Schema = Mapping[str, Any]
"""JSON Schema of a tool's parameters."""

ANSWER = "answer"
"""The state of a model's answer; the openers of the tool format lead out of it."""

REASONING = "reasoning"
"""The state within a model's reasoning."""

MAX_HEADER_CHARS = 1024
MAX_BODY_CHARS = 2**16

Targets = Mapping[str, str]
"""Markers, each with the state that it leads to."""


class MalformedError(Exception):
    """The text is not in the format.

    `at`: how much of the text that was pushed belongs to what is not; where the rest begins does
    not depend on how the text was portioned.
    """

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.at = at


class CallWriter(Protocol):
    """Takes the calls that a `BodyReader` finds."""

    @property
    def schema(self) -> Schema | None:
        """Of the parameters of the tool that the open call names, if it is known."""
        ...

    def start(self, name: str, call_id: str = "") -> None:
        """A call begins; the one before it, if any, has ended."""
        ...

    def arguments(self, text: str) -> None:
        """A part of the call's arguments."""
        ...

    def end(self) -> None:
        """The call is complete."""
        ...


class BodyReader(Protocol):
    """Reads calls out of a text that comes in portions, however it was portioned."""

    @property
    def in_string(self) -> bool:
        """True if a marker at this place is data, as in a string."""
        ...

    def push(self, text: str, calls: CallWriter) -> int | None:
        """Reads on; returns how much of `text` the body has, if it ends there.

        Raises:
            MalformedError: this is no such body; what was written to `calls` remains.
        """
        ...

    def close(self, calls: CallWriter) -> None:
        """A marker, or the end of the output, comes before the body's end.

        Raises:
            MalformedError: what is left is no call.
        """
        ...


class WholeBody(abc.ABC):
    """A `BodyReader` of bodies that end at a marker and are read when they are complete."""

    in_string = False

    def __init__(self) -> None:
        """Begins with no text."""
        self._kept: list[str] = []
        self._num_kept = 0

    @property
    def text(self) -> str:
        """What has come of the body, at most `MAX_BODY_CHARS`."""
        return "".join(self._kept)

    def push(self, text: str, calls: CallWriter) -> int | None:
        """See `BodyReader`."""
        del calls
        room = MAX_BODY_CHARS - self._num_kept
        self._kept.append(text[:room])
        self._num_kept += len(text)
        if len(text) > room:
            raise MalformedError(room)
        return None

    @abc.abstractmethod
    def close(self, calls: CallWriter) -> None:
        """See `BodyReader`."""


@dataclass(frozen=True, slots=True)
class Gap:
    """White space, which is dropped, between two markers.

    `otherwise`: where other text leads. Without it, other text is dropped within a call; between
    calls it is part of the answer, and before the first one it shows that there is none.
    """

    on: Targets
    in_call: bool = False
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """Text up to a marker, of which all has to match `pattern`.

    Groups of the pattern: `name` and `id` of a call that begins when the header is left; `key` of
    the value that comes next, and `type`, "string" or another one, if the model says it.
    """

    pattern: str
    on: Targets
    in_call: bool = False


@dataclass(frozen=True, slots=True)
class Fork:
    """Text up to `marker`, which says where that leads: to the first of `cases` whose pattern all
    of it matches, with the groups `name` and `id` as in a `Header`. `on`: other markers."""

    marker: str
    cases: tuple[tuple[str, str], ...]
    on: Targets = field(default_factory=dict[str, str])
    in_call: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Said:
    """Text of the answer or, if `is_reasoning`, of the reasoning, up to a marker."""

    on: Targets
    is_reasoning: bool = False
    in_call: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Value:
    """The value of the last key, up to a marker.

    `trim`: "line" drops one line break at either end, "space" all white space at both ends, "none"
    nothing. `typing` says what is a string: "schema": what the tool's schema calls one, "json":
    what is no JSON, "declared": what the header's `type` calls one, else as "json".
    `wrappers`: keys whose value is all arguments if the call has no other one and its tool no such
    parameter.
    """

    in_call: ClassVar[bool] = True
    on: Targets
    trim: Literal["none", "line", "space"] = "none"
    typing: Literal["schema", "json", "declared"] = "schema"
    wrappers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """Text that a reader takes apart. Behind the body's end only white space is expected, up to
    a marker; `then` is where to go at its end instead.

    `keeps_marker`: the marker that led here, such as a bracket, is the beginning of the body.
    `in_call`: the body has the arguments of the call whose name a header had.
    """

    reader: Callable[[], BodyReader]
    on: Targets = field(default_factory=dict[str, str])
    then: str | None = None
    keeps_marker: bool = False
    in_call: bool = False


State = Gap | Header | Fork | Said | Value | Body


@dataclass(frozen=True, slots=True)
class Parameters:
    """How arguments are written one by one.

    `before_value` is in front of strings, `before_json` in front of other values, if that differs;
    so are `after_value` and `after_json`. `quotes`: strings are written as JSON, too; else they are
    plain text up to `after_value`. `mark`: a text that no value may hold, beside what ends one.
    """

    before_key: str
    before_value: str
    after_value: str = ""
    between: str = ""
    before_json: str = ""
    after_json: str | None = None
    quotes: bool = False
    mark: str = ""


INDEX = "\0"
"""Within a `Spelling`: the number of the call, from 0 on."""
KEY = "\1"
"""Within what follows a value: its key."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a model that has to call tools is made to write: one of the ways that the states read.

        begin, call, between, call, ..., end

    A call is the tool's name and its arguments between `before_name`, `before_arguments` and
    `after_arguments`. Without `parameters`, its arguments are a JSON object. `is_single`: there is
    one call at most.

    Of a format of messages: reasoning may come first, between the two texts `thought`, and `answer`
    is in front of an answer.
    """

    before_name: str
    before_arguments: str
    after_arguments: str = ""
    begin: str = ""
    between: str = ""
    end: str = ""
    parameters: Parameters | None = None
    is_single: bool = False
    thought: tuple[str, str] = ("", "")
    answer: str = ""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a family of models writes calls of tools.

    `openers` are met anywhere in an answer or in reasoning, `starts` only where an answer begins,
    white space aside. `tokens` are no markers, but have to be read even if they are special tokens.
    A chat template that has all of `marks` and none of `lacks` is surely that of one of the
    format's models; without marks, no template is. `spelling` None: grammars of its calls cannot be
    written.
    """

    states: Mapping[str, State]
    openers: Targets = field(default_factory=dict[str, str])
    starts: Targets = field(default_factory=dict[str, str])
    tokens: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    spelling: Spelling | None = None

    def is_in(self, template: str) -> bool:
        """True if a chat template with this source surely has its model write this format."""
        return is_in(template, self.marks, self.lacks)

    @property
    def markers(self) -> set[str]:
        """All markers."""
        return {
            *self.openers,
            *self.starts,
            *self.tokens,
            *(marker for state in self.states.values() for marker in state.on),
        }


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a family of models writes what it thinks before it answers.

    `begins_within`: the output begins with reasoning, whether or not its opener is there. `label`:
    what follows an opener on its line; without it, there is no reasoning. `drops`: what surrounds
    an answer and is no part of it. `is_answer`: the reasoning, with its markers, is the beginning
    of the answer. `answers_if`: if a request sets any of these variables of the template to this
    value, the reasoning is also the answer of an output that has none.
    """

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    begins_within: bool = False
    label: str = ""
    drops: tuple[str, ...] = ()
    is_answer: bool = False
    answers_if: Mapping[str, bool] = field(default_factory=dict[str, bool])
    marks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def is_in(self, template: str) -> bool:
        """As for `ToolFormat`."""
        return is_in(template, self.marks, self.lacks)

    @property
    def markers(self) -> set[str]:
        """All markers."""
        return {*self.openers, *self.closers, *self.drops}


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How a family of models writes whole outputs, as messages with headers that say what each is;
    `ANSWER` and `REASONING` are among the states.

    `first`: the state in which an output begins. `prompt_ends`: what a prompt may end with, and the
    state in which the output begins then. Other fields are those of `ToolFormat`.
    """

    states: Mapping[str, State]
    first: str
    prompt_ends: Targets = field(default_factory=dict[str, str])
    tokens: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    spelling: Spelling | None = None

    def is_in(self, template: str) -> bool:
        """As for `ToolFormat`."""
        return is_in(template, self.marks, self.lacks)

    @property
    def markers(self) -> set[str]:
        """All markers."""
        forks = {state.marker for state in self.states.values() if isinstance(state, Fork)}
        return forks.union(self.tokens, *(state.on for state in self.states.values()))


def is_in(template: str, marks: tuple[str, ...], lacks: tuple[str, ...]) -> bool:
    """True if the template's source has all `marks`, of which there are some, and no `lacks`."""
    return (
        bool(marks)
        and all(mark in template for mark in marks)
        and not any(mark in template for mark in lacks)
    )
