"""What a model's output says: text, reasoning and calls of tools, in the order of the output.

    Text("It is ")  Reasoning("The user...")
    CallStart("get_weather")  CallArguments('{"city": ')  CallArguments('"Paris"}')  CallEnd()

A stream writes events as they come; a response that is not streamed is their fold (`Message`).
Calls do not overlap, so events need no number of the call that they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Call:
    """A folded call of a tool; `arguments` is the JSON that the model wrote."""

    name: str
    id: str
    parts: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        """The arguments' JSON."""
        return "".join(self.parts)


class Message:
    """The fold of a choice's events."""

    __slots__ = ("_reasoning", "_text", "calls")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.calls: list[Call] = []

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """What was thought before it."""
        return "".join(self._reasoning)

    def add(self, event: Event) -> None:
        """Appends the next event."""
        match event:
            case Text(text):
                self._text.append(text)
            case Reasoning(text):
                self._reasoning.append(text)
            case CallStart(name, call_id):
                self.calls.append(Call(name, call_id))
            case CallArguments(text):
                self.calls[-1].parts.append(text)
            case CallEnd():
                pass
