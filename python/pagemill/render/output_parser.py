"""Pieces of a choice's output to events, by the model's reasoning format and its tool format.

    parser = OutputParser(Formats(reasoning=Think, tools=Hermes))
    events: list[Event] = []
    parser.push(Piece("<think>", 7, False), events)
    ...
    parser.finish(events)

The events' fold is the same however the tokens were portioned into outputs. Reasoning comes first,
if at all; a call of a tool ends it. White space beside markers is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pagemill.render.bordered_text import BorderedText
from pagemill.render.events import CallEnd, CallStart, Event, Piece, Text
from pagemill.render.formats.base import Format
from pagemill.render.formats.table import REASONING_FORMATS, TOOL_FORMATS, choose
from pagemill.render.markers import MarkerFinder


@dataclass(frozen=True, slots=True)
class FormatNames:
    """Formats that an operator names: of `formats.table`, "none", or None for an own choice."""

    reasoning: str | None = None
    tools: str | None = None


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one model, and which of their markers are tokens of its vocabulary."""

    reasoning: type[Format] | None = None
    tools: type[Format] | None = None
    marker_ids: Mapping[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of(
        cls, template: str, names: FormatNames, token_id: Callable[[str], int | None]
    ) -> Formats:
        """The formats that `names` say, or else those that `template` clearly has.

        Args:
          template: source of the chat template.
          names: the operator's.
          token_id: the id of a marker that is a token of its own.

        Raises:
          RenderError: a name is unknown.
        """
        reasoning = choose(REASONING_FORMATS, names.reasoning, template, "--reasoning-parser")
        tools = choose(TOOL_FORMATS, names.tools, template, "--tool-call-parser")
        formats = [each for each in (reasoning, tools) if each is not None]
        markers = [marker for each in formats for marker in (each.opener, each.closer)]
        ids = {index: m for m in markers if (index := token_id(m)) is not None}
        return cls(reasoning, tools, ids)

    def in_reasoning(self, prompt_end: str) -> bool:
        """True if a prompt that ends like this has opened the reasoning itself."""
        return self.reasoning is not None and prompt_end.rstrip().endswith(self.reasoning.opener)

    def leaves_in_reasoning(self, content: str) -> bool:
        """True if a message that the output continues is within its reasoning."""
        kind = self.reasoning
        return kind is not None and content.rfind(kind.opener) > content.rfind(kind.closer)


@dataclass(frozen=True, slots=True)
class ParserOptions:
    """What one request wants parsed.

    `tools`: the model was shown tools that it may call. `in_reasoning`: the prompt ends with the
    marker that opens reasoning. `max_calls` 0 is any number.
    """

    reasoning: bool = False
    tools: bool = False
    in_reasoning: bool = False
    max_calls: int = 0


NOTHING = ParserOptions()


class OutputParser:
    """Follows one choice. Not thread-safe; keeps a bounded amount of text."""

    def __init__(self, formats: Formats, options: ParserOptions = NOTHING) -> None:
        reasoning = formats.reasoning if options.reasoning else None
        tools = formats.tools if options.tools else None
        self._reasoning = reasoning() if reasoning is not None else None
        self._tools = tools() if tools is not None else None
        self.marker_ids: Mapping[int, str] = {}
        self._finder = self._marker_finder(formats.marker_ids)
        self._region: Format | None = None
        self._may_reason = self._reasoning is not None
        self._text = BorderedText(after_marker=False, holds_back=self._finder is not None)
        self._space = ""  # before the marker of a region that may turn out to be text
        self._max_calls = options.max_calls
        self.num_calls = 0
        if options.in_reasoning and self._reasoning is not None:
            self._enter(self._reasoning, [])

    @property
    def is_complete(self) -> bool:
        """True once there are as many calls as there may be."""
        return 0 < self._max_calls <= self.num_calls

    def push(self, piece: Piece, events: list[Event]) -> None:
        """Appends the events that `piece` completes."""
        if self._finder is None:
            if piece.text:
                events.append(Text(piece.text))
        elif self._finder.is_plain(piece):
            if piece.text:
                self._take(piece.text, events)
        else:
            for text, is_marker in self._finder.push(piece):
                if not is_marker or not self._passed(text, events):
                    self._take(text, events)

    def finish(self, events: list[Event]) -> None:
        """Appends what was held back: the output is over."""
        if self._finder is not None and (rest := self._finder.rest()):
            self._take(rest, events)
        if self._region is not None:
            begin = len(events)
            self._region.cut(events)
            self._check(begin, events)
        elif rest := self._text.rest():
            events.append(Text(rest))

    def _marker_finder(self, marker_ids: Mapping[int, str]) -> MarkerFinder | None:
        formats = [each for each in (self._reasoning, self._tools) if each is not None]
        if not formats:
            return None
        markers = {marker for each in formats for marker in (each.opener, each.closer)}
        self.marker_ids = {i: marker for i, marker in marker_ids.items() if marker in markers}
        return MarkerFinder(sorted(markers), self.marker_ids)

    def _take(self, text: str, events: list[Event]) -> None:
        if self._region is None:
            text = self._text.push(text)
            if text:
                events.append(Text(text))
                if self._may_reason:
                    self._stop_reasoning()
            return
        begin = len(events)
        self._region.push(text, events)
        if self._region is self._tools:
            self._check(begin, events)

    def _passed(self, marker: str, events: list[Event]) -> bool:
        """Opens or closes a region; False if `marker` is text at this place."""
        region, tools, reasoning = self._region, self._tools, self._reasoning
        if region is not None and region.quotes_markers:
            return False
        if region is not None and marker == region.closer:
            self._leave(region, events)
        elif tools is not None and marker == tools.opener and region is not tools:
            if region is not None:
                self._leave(region, events)
            self._enter(tools, events)
        elif self._may_reason and reasoning is not None and marker == reasoning.opener:
            if region is not None:
                return False
            self._enter(reasoning, events)
        else:
            return False
        return True

    def _enter(self, region: Format, events: list[Event]) -> None:
        self._space = self._text.rest()
        self._region = region
        self._stop_reasoning()
        region.open(events)

    def _leave(self, region: Format, events: list[Event]) -> None:
        begin = len(events)
        region.close(events)
        self._region = None
        after_marker = True
        if region is self._tools:
            self._check(begin, events)
            after_marker = type(events[-1]) is not Text
        self._text = BorderedText(after_marker=after_marker, holds_back=self._tools is not None)

    def _check(self, begin: int, events: list[Event]) -> None:
        """Counts calls; a region that is text keeps the white space before its marker."""
        for event in events[begin:]:
            kind = type(event)
            if kind is CallStart:
                self._space = ""
            elif kind is CallEnd:
                self.num_calls += 1
            elif kind is Text and self._space:
                events.insert(begin, Text(self._space))
                self._space = ""

    def _stop_reasoning(self) -> None:
        self._may_reason = False
        self._text.holds_back = self._tools is not None
