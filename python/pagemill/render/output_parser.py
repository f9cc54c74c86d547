"""Pieces of a choice's output to events, by the model's reasoning format and its tool format.

    parser = OutputParser(formats, ParserOptions(reasoning=True, tools=True))
    events: list[Event] = []
    parser.push(Piece("<think>", 7, False), events)
    ...
    parser.finish(events)

The events' fold is the same however the tokens were portioned into outputs. Reasoning comes first,
if at all; a call of a tool ends it. White space beside markers is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagemill.render.bordered_text import BorderedText
from pagemill.render.call_region import CallRegion
from pagemill.render.events import Event, Piece, Reasoning, Text
from pagemill.render.formats.format import ANSWER, REASONING, MalformedError, Schema
from pagemill.render.output_machine import Formats, TextKind


@dataclass(frozen=True, slots=True)
class ParserOptions:
    """What one request wants parsed.

    `tools`: the model was shown tools that it may call. `begins`: the state in which the output
    begins (`Formats.after_prompt`); None: as always. `answers_with_reasoning`: the reasoning of an
    output without an answer is also its answer. `max_calls` 0 is any number. `schemas`: JSON
    Schema of the parameters of each tool, by its name.
    """

    reasoning: bool = False
    tools: bool = False
    begins: str | None = None
    answers_with_reasoning: bool = False
    max_calls: int = 0
    schemas: Mapping[str, Schema] = field(default_factory=dict[str, Schema])


NOTHING = ParserOptions()
_PORTION_CHARS = 2048
"""Of a long text: every state looks for its markers to the end of what it is given."""


class OutputParser:
    """Follows one choice. Not thread-safe; keeps a bounded amount of text."""

    def __init__(self, formats: Formats, options: ParserOptions = NOTHING) -> None:
        """Begins a choice whose prompt has ended."""
        self._machine = formats.machine(options.reasoning, options.tools)
        self.marker_ids: Mapping[int, str] = self._machine.marker_ids
        self._max_calls = options.max_calls
        self._opener = self._machine.opener if options.begins in (None, REASONING) else ""
        # The reasoning so far, which the model's context bounds; None once there is an answer.
        self._thoughts: list[str] | None = [] if options.answers_with_reasoning else None
        self._held = ""  # the beginning of a marker, maybe
        self._space = ""  # before the marker that opened the region
        self._region = CallRegion(options.schemas)
        self._node = self._machine.first(options.begins)
        if self._node.state is not None:
            self._region.open("", keeps_text=True)
            self._region.enter(self._node.state, "")
        self._text = BorderedText(
            after_marker=self._node.kind is TextKind.REASONING,
            holds_back=self._machine.has_markers,
        )

    @property
    def num_calls(self) -> int:
        """Calls that have ended."""
        return self._region.num_ended

    @property
    def is_complete(self) -> bool:
        """True once there are as many calls as there may be."""
        return 0 < self._max_calls <= self._region.num_ended

    @property
    def is_reasoning(self) -> bool:
        """True if what comes next is reasoning, or the marker that ends it."""
        return self._node.kind is TextKind.REASONING

    @property
    def is_answer(self) -> bool:
        """True if what comes next is text of the answer, or a marker that ends it."""
        return self._node.kind is TextKind.ANSWER

    def push(self, piece: Piece, events: list[Event]) -> None:
        """Appends the events that `piece` completes."""
        if not self._machine.has_markers:
            if piece.text:
                events.append(Text(piece.text))
            return
        self._region.events = events
        if self._opener:
            events.append(Text(self._opener))
            self._opener = ""
        marker = self.marker_ids.get(piece.token_id)
        if marker is None:
            text = piece.text
            while len(text) > _PORTION_CHARS:
                self._scan(text[:_PORTION_CHARS], events, may_continue=True)
                text = text[_PORTION_CHARS:]
            self._scan(text, events, may_continue=True)
            return
        self._scan(piece.text.removesuffix(marker), events)  # half a character, if any
        if marker in self._node.on and not self._region.in_string:
            self._pass(marker, events)
        else:
            self._take(marker, events)

    def finish(self, events: list[Event]) -> None:
        """Appends what was held back: the output is over."""
        self._region.events = events
        half, node = self._held, self._node
        is_text = node.kind is not None or self._region.in_string
        if is_text or node.unsure(half, 0) < len(half):
            half = ""
            self._scan("", events)
        if self._node.kind is not None:
            self._say(self._text.rest(), events)
        else:
            self._say_raw(self._region.cut(half), events)
        if self._thoughts and not self._region.num_ended:
            events.append(Text("".join(self._thoughts)))

    def _scan(self, text: str, events: list[Event], *, may_continue: bool = False) -> None:
        """Takes `text`, without the beginning of a marker at its end if it `may_continue`."""
        if self._held:
            text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            node = self._node
            found = node.pattern.search(text, at) if node.pattern is not None else None
            if found is None:
                end = len(text) - (node.unsure(text, at) if may_continue else 0)
            elif found.start() == at and not self._region.in_string:
                if may_continue and node.may_grow(text, at, found[0]):
                    self._held = text[at:]
                    return
                at = found.end()
                self._pass(found[0], events)
                continue
            else:
                end = found.start() if found.start() > at else found.end()
            if end == at:
                self._held = text[at:]
                return
            at += self._take(text[at:end], events)

    def _take(self, text: str, events: list[Event]) -> int:
        """Takes text of the present state; returns how much, after which the state may be another
        one."""
        node = self._node
        if node.kind is None:
            return self._take_of_call(text, events)
        if self._say(self._text.push(text), events) and node.otherwise is not None:
            self._node = self._machine.nodes[node.otherwise]
            self._text.holds_back = bool(self._node.on)
        return len(text)

    def _take_of_call(self, text: str, events: list[Event]) -> int:
        region = self._region
        try:
            taken = region.give(text)
        except MalformedError as error:
            self._abandon(events)
            return error.at
        if (then := region.then) is not None:
            self._go(then, "", events)
        return taken

    def _say(self, text: str, events: list[Event]) -> bool:
        """Appends text of the present state, if there is any."""
        if text:
            is_answer = self._node.kind is TextKind.ANSWER
            events.append(Text(text) if is_answer else Reasoning(text))
            if is_answer:
                self._thoughts = None
            elif self._thoughts is not None:
                self._thoughts.append(text)
        return bool(text)

    def _pass(self, marker: str, events: list[Event]) -> None:
        """Goes where `marker` leads."""
        target = self._node.on[marker]
        region = self._region
        if self._node.kind is not None:
            self._space = self._text.rest()
            if self._machine.nodes[target].kind is None:
                region.open(marker, keeps_text=not self._machine.has_messages)
        else:
            try:
                target = region.leave(marker, target)
            except MalformedError:
                self._abandon(events)
                return
        self._go(target, marker, events)

    def _go(self, target: str, marker: str, events: list[Event]) -> None:
        region, before = self._region, self._node
        node = self._node = self._machine.nodes[target]
        if node.state is not None:
            try:
                region.enter(node.state, marker)
            except MalformedError:
                self._abandon(events)
            return
        text = region.close() if before.kind is None else ""
        said = not node.follows_header and self._say_raw(text, events)
        self._text = BorderedText(after_marker=not said, holds_back=bool(node.on))

    def _abandon(self, events: list[Event]) -> None:
        """The region is no call, or no other one: the answer goes on."""
        said = self._say_raw(self._region.abandon(), events)
        self._node = self._machine.nodes[ANSWER]
        self._text = BorderedText(after_marker=not said, holds_back=bool(self._node.on))

    def _say_raw(self, text: str, events: list[Event]) -> bool:
        """Appends the text of a region that is no call, if there is any."""
        if text:
            events.append(Text(self._space + text))
            self._thoughts = None
        return bool(text)
