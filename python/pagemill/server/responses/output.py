"""A choice's events as items of a response, with the stream's events about each of them.

    output = OutputItems(say)       # `say` gets ItemAdded, PartAdded, ...
    output.add(Text("It is "))
    output.end(complete=True)
    output.items

Texts of a kind that follow one another are one item; a call is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Protocol

from pagemill.render.events import CallArguments, CallEnd, CallStart, Event, Reasoning, Text
from pagemill.server.protocol.chat import ContentLogprob
from pagemill.server.protocol.response_events import (
    ArgumentsDelta,
    ArgumentsDone,
    DeltaEvent,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningPartAdded,
    ReasoningPartDone,
    TextDelta,
    TextDone,
)
from pagemill.server.protocol.response_items import (
    FunctionCall,
    ItemStatus,
    McpApprovalRequest,
    McpCall,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
)
from pagemill.server.responses.custom_tools import OpenCustomCall
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.tool_items import OpenApproval, OpenToolCall, Say, ToolItems
from pagemill.server.tools.events import ToolEvent

_WRITTEN = (Text, Reasoning, CallStart, CallArguments, CallEnd)


class OpenItem(Protocol):
    """The item that is being written; `parts` are its text so far."""

    parts: list[str]

    @property
    def kind(self) -> type[Event]:
        """Events that continue the item."""
        ...

    def delta(self, text: str) -> DeltaEvent | None:
        """The event that says that the item has `text` more; None if that is not said."""
        ...

    def item(self, status: ItemStatus) -> OutputItem:
        """The item so far."""
        ...

    def begin(self, say: Say) -> None:
        """Says what comes before the first delta, except that the item begins."""
        ...

    def end(self, say: Say) -> None:
        """Says what comes after the last delta, except that the item is over."""
        ...


class OutputItems:
    """The items so far: `items` are over, `open` is being written."""

    def __init__(self, say: Say, custom_tools: Set[str] = frozenset()) -> None:
        """`custom_tools` are the names of tools whose input is any text."""
        self._say = say
        self._custom_tools = custom_tools
        self._logprobs: list[ContentLogprob] = []  # of the message that is open, or comes next
        self.items: list[OutputItem] = []
        self.open: OpenItem | None = None
        self._tools = ToolItems(self.items, say)

    def add_logprobs(self, logprobs: Sequence[ContentLogprob]) -> None:
        """Appends those of the answer's next tokens, before the events that the tokens make. The
        next event of the answer's text says them."""
        self._logprobs += logprobs

    def add(self, event: Event | ToolEvent) -> None:
        """Appends the next event."""
        if not isinstance(event, _WRITTEN):
            self._end(complete=True)
            self._tools.add(event)
            return
        match event:
            case Text(text):
                item = self._continued(Text) or self._begin(self._new_message)
                self._append(item, text)
            case Reasoning(text):
                item = self._continued(Reasoning) or self._begin(_OpenReasoning)
                self._append(item, text)
            case CallStart():
                self._begin(lambda index: self._new_call(index, event))
            case CallArguments(text):
                assert self.open is not None
                self._append(self.open, text)
            case CallEnd(complete):
                self._end(complete)

    def end(self, *, complete: bool) -> None:
        """The output is over; not `complete`: it was cut. What is complete has an item at least."""
        if complete and self.open is None and not self.items:
            self._begin(self._new_message)
        self._end(complete)
        self._tools.end()

    def _new_message(self, index: int) -> OpenItem:
        return _OpenMessage(index, self._logprobs)

    def _new_call(self, index: int, call: CallStart) -> OpenItem:
        if call.name in self._custom_tools:
            return OpenCustomCall(index, call)
        tool = self._tools.tool(call.name)
        if tool is None:
            return _OpenCall(index, call)
        return OpenApproval(tool) if tool.needs_approval else OpenToolCall(index, tool)

    def _continued(self, kind: type[Event]) -> OpenItem | None:
        return self.open if self.open is not None and self.open.kind is kind else None

    def _append(self, item: OpenItem, text: str) -> None:
        if text:
            item.parts.append(text)
            delta = item.delta(text)
            if delta is not None:
                self._say(delta)

    def _begin(self, new: Callable[[int], OpenItem]) -> OpenItem:
        """Ends the item that is open, and begins `new` of its place in the output."""
        self._end(complete=True)
        item = new(len(self.items))
        self._say(ItemAdded(len(self.items), _empty(item.item("in_progress"))))
        item.begin(self._say)
        self.open = item
        return item

    def _end(self, complete: bool) -> None:
        if self.open is None:
            return
        self.open.end(self._say)
        item = self.open.item("completed" if complete else "incomplete")
        if isinstance(item, McpCall | McpApprovalRequest):
            self._tools.called(item)
        if not isinstance(item, McpCall):
            self._say(ItemDone(len(self.items), item))
        self.items.append(item)
        if self.open.kind is Text:
            self._logprobs = []
        self.open = None


def _empty(item: OutputItem) -> OutputItem:
    """`item` as it is announced: its parts have events of their own."""
    if isinstance(item, OutputMessage | ReasoningItem):
        item.content = []
    return item


class _OpenMessage:
    kind = Text

    def __init__(self, index: int, logprobs: list[ContentLogprob]) -> None:
        """`logprobs` grows while the message is open."""
        self._index = index
        self._id = new_id("msg")
        self._logprobs = logprobs
        self._num_said = 0
        self.parts: list[str] = []

    def delta(self, text: str) -> DeltaEvent:
        unsaid = self._logprobs[self._num_said :]
        self._num_said = len(self._logprobs)
        return TextDelta(self._id, self._index, 0, text, unsaid)

    def item(self, status: ItemStatus) -> OutputItem:
        return OutputMessage(self._id, status, [self._part()])

    def begin(self, say: Say) -> None:
        say(PartAdded(self._id, self._index, 0, OutputText("")))

    def end(self, say: Say) -> None:
        part = self._part()
        say(TextDone(self._id, self._index, 0, part.text, part.logprobs))
        say(PartDone(self._id, self._index, 0, part))

    def _part(self) -> OutputText:
        return OutputText("".join(self.parts), logprobs=self._logprobs)


class _OpenReasoning:
    kind = Reasoning

    def __init__(self, index: int) -> None:
        self._index = index
        self._id = new_id("rs")
        self.parts: list[str] = []

    def delta(self, text: str) -> DeltaEvent:
        return ReasoningDelta(self._id, self._index, 0, text)

    def item(self, status: ItemStatus) -> OutputItem:
        return ReasoningItem(self._id, status, [self._part()])

    def begin(self, say: Say) -> None:
        say(ReasoningPartAdded(self._id, self._index, 0, self._part()))

    def end(self, say: Say) -> None:
        part = self._part()
        say(ReasoningDone(self._id, self._index, 0, part.text))
        say(ReasoningPartDone(self._id, self._index, 0, part))

    def _part(self) -> ReasoningText:
        return ReasoningText("".join(self.parts))


class _OpenCall:
    kind = CallArguments

    def __init__(self, index: int, call: CallStart) -> None:
        self._index = index
        self._id = new_id("fc")
        self._name = call.name
        self._call_id = call.id or new_id("call")
        self.parts: list[str] = []

    def delta(self, text: str) -> DeltaEvent:
        return ArgumentsDelta(self._id, self._index, text)

    def item(self, status: ItemStatus) -> OutputItem:
        return FunctionCall(self._id, status, self._call_id, self._name, "".join(self.parts))

    def begin(self, say: Say) -> None:
        del say  # a call has no parts

    def end(self, say: Say) -> None:
        say(ArgumentsDone(self._id, self._index, self._name, "".join(self.parts)))
