"""What a model's output says: text, reasoning and calls of tools, in the order of the output.

    Text("It is ")  Reasoning("The user...")
    CallStart("get_weather")  CallArguments('{"city": ')  CallArguments('"Paris"}')  CallEnd()

A stream writes events as they come; a response that is not streamed is their fold (`Message`).
Calls do not overlap, so events need no number of the call that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import msgspec

NO_TOKEN = -1


class Piece(NamedTuple):
    """The text that one token completes; a special token has none if those are skipped.

    `token_id` is NO_TOKEN for text that belongs to no one token.
    """

    text: str
    token_id: int
    special: bool


class Text(msgspec.Struct, frozen=True, gc=False):
    """A part of the answer."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """A part of what the model thinks before it answers."""

    text: str


class CallStart(msgspec.Struct, frozen=True, gc=False):
    """A call of the tool `name` begins. `id` is empty unless the model writes one itself."""

    name: str
    id: str = ""


class CallArguments(msgspec.Struct, frozen=True, gc=False):
    """A part of the call's arguments: JSON as the model wrote it."""

    text: str


class CallEnd(msgspec.Struct, frozen=True, gc=False):
    """The call is over; not `complete`: the output, or the call's text, ended within it."""

    complete: bool = True


Event = Text | Reasoning | CallStart | CallArguments | CallEnd
TEXTS = (Text, Reasoning, CallArguments)
"""Events with a `text`."""


def joined(events: Sequence[Event]) -> Iterator[Event]:
    """The fewest events that say the same."""
    for kind, group in groupby(events, type):
        if kind in TEXTS:
            yield kind("".join([each.text for each in group if isinstance(each, TEXTS)]))
        else:
            yield from group


@dataclass(slots=True)
class Run:
    """Text of one kind, `Text` or `Reasoning`, without an event of another kind in between."""

    kind: type[Text] | type[Reasoning]
    parts: list[str]

    @property
    def text(self) -> str:
        """The run's text."""
        return "".join(self.parts)


@dataclass(slots=True)
class Call:
    """A folded call of a tool; `arguments` is the JSON that the model wrote."""

    name: str
    id: str
    parts: list[str] = field(default_factory=list[str])
    complete: bool = False

    @property
    def arguments(self) -> str:
        """The arguments' JSON."""
        return "".join(self.parts)


class Message:
    """The fold of a choice's events; `parts` are in the order of the output."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Run | Call] = []

    @property
    def text(self) -> str:
        """The answer."""
        return self._text(Text)

    @property
    def reasoning(self) -> str:
        """What was thought before it."""
        return self._text(Reasoning)

    @property
    def calls(self) -> list[Call]:
        """The calls of tools."""
        return [part for part in self.parts if isinstance(part, Call)]

    def add(self, event: Event) -> None:
        """Appends the next event."""
        last = self.parts[-1] if self.parts else None
        match event:
            case Text(text) | Reasoning(text):
                if isinstance(last, Run) and last.kind is type(event):
                    last.parts.append(text)
                else:
                    self.parts.append(Run(type(event), [text]))
            case CallStart(name, call_id):
                self.parts.append(Call(name, call_id))
            case CallArguments(text):
                assert isinstance(last, Call)
                last.parts.append(text)
            case CallEnd(complete):
                assert isinstance(last, Call)
                last.complete = complete

    def _text(self, kind: type[Text] | type[Reasoning]) -> str:
        runs = [part for part in self.parts if isinstance(part, Run) and part.kind is kind]
        return "".join([run.text for run in runs])
