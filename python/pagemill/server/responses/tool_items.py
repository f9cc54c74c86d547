"""Items of tools that the server runs: lists of tools, calls, and calls that need approval.

An item of text is over when the next one begins. A list or a call is over when its server has
answered, and several wait at the same time: each keeps its place in the output.
"""

from __future__ import annotations

from collections.abc import Callable

from pagemill.render.events import CallArguments, CallStart
from pagemill.server.protocol.response_events import (
    DeltaEvent,
    ItemAdded,
    ItemDone,
    McpArgumentsDelta,
    McpArgumentsDone,
    McpCallBegun,
    McpCallCompleted,
    McpCallFailed,
    McpListBegun,
    McpListCompleted,
    McpListFailed,
    ResponseEvent,
)
from pagemill.server.protocol.response_items import (
    ItemStatus,
    McpApprovalRequest,
    McpCall,
    McpListedTool,
    McpListTools,
    McpProtocolError,
    McpToolError,
    OutputItem,
)
from pagemill.server.responses.ids import new_id
from pagemill.server.tools.events import CallBegun, CallReturned, Listed, ListingBegun, ToolEvent
from pagemill.server.tools.offer import OfferedTool
from pagemill.server.tools.tool import ToolResult

Say = Callable[[ResponseEvent], None]


class ToolItems:
    """Places of the items that wait for a server, in the list `items`."""

    def __init__(self, items: list[OutputItem], say: Say) -> None:
        self._items = items
        self._say = say
        self._lists: list[int | None] = []  # by the number of the listing
        self._calls: list[int] = []  # by the number of the call
        self._waiting: set[int] = set()
        self._tools: dict[str, OfferedTool] = {}

    def tool(self, name: str) -> OfferedTool | None:
        """The tool that the model knows by `name`, if the server runs it."""
        return self._tools.get(name)

    def called(self, item: OutputItem) -> None:
        """A call is written: `item`, which is appended next."""
        self._calls.append(len(self._items))
        if isinstance(item, McpCall):
            self._waiting.add(len(self._items))

    def add(self, event: ToolEvent) -> None:
        """Says what `event` says."""
        match event:
            case ListingBegun(offer):
                self._lists.append(self._begin_list(offer.server.label) if offer.is_new else None)
            case Listed():
                self._listed(event)
            case CallBegun(call):
                item = McpCall(
                    new_id("mcp"),
                    call.server_label,
                    call.name,
                    call.arguments,
                    approval_request_id=call.approval_id,
                )
                at = len(self._items)
                self._say(ItemAdded(at, item))
                self._say(McpCallBegun(item.id, at))
                self._say(McpArgumentsDone(item.id, at, item.arguments))
                self.called(item)
                self._items.append(item)
            case CallReturned():
                self._returned(event)

    def end(self) -> None:
        """Nothing more comes: what waits is not complete."""
        for at in sorted(self._waiting):
            item = self._items[at]
            if isinstance(item, McpCall):
                item.status = "incomplete"
            self._say(ItemDone(at, item))
        self._waiting.clear()

    def _begin_list(self, label: str) -> int:
        at, item = len(self._items), McpListTools(new_id("mcpl"), label, [])
        self._say(ItemAdded(at, item))
        self._say(McpListBegun(item.id, at))
        self._items.append(item)
        self._waiting.add(at)
        return at

    def _listed(self, event: Listed) -> None:
        self._tools |= {tool.function_name: tool for tool in event.tools}
        at = self._lists[event.index]
        if at is None and event.error is None:
            return  # the conversation has the list
        at = self._begin_list(event.offer.server.label) if at is None else at
        item = self._items[at]
        assert isinstance(item, McpListTools)
        item.tools = [_listed_tool(offered) for offered in event.tools]
        item.error = None if event.error is None else event.error.message
        kind = McpListCompleted if event.error is None else McpListFailed
        self._say(kind(item.id, at))
        self._done(at)

    def _returned(self, event: CallReturned) -> None:
        at, outcome = self._calls[event.index], event.outcome
        item = self._items[at]
        assert isinstance(item, McpCall)
        if not isinstance(outcome, ToolResult):
            item.error = McpProtocolError(outcome.code, outcome.message)
        elif outcome.is_error:
            item.error = McpToolError([{"type": "text", "text": outcome.text}])
        else:
            item.output = outcome.text
        item.status = "completed" if item.error is None else "failed"
        kind = McpCallCompleted if item.error is None else McpCallFailed
        self._say(kind(item.id, at))
        self._done(at)

    def _done(self, at: int) -> None:
        self._waiting.discard(at)
        self._say(ItemDone(at, self._items[at]))


class OpenToolCall:
    """A call of a tool that the server runs, while the model writes it."""

    kind = CallArguments

    def __init__(self, index: int, tool: OfferedTool) -> None:
        self._index = index
        self._id = new_id("mcp")
        self._tool = tool
        self.parts: list[str] = []

    def delta(self, text: str) -> DeltaEvent:
        """See `output.OpenItem`."""
        return McpArgumentsDelta(self._id, self._index, text)

    def item(self, status: ItemStatus) -> McpCall:
        """See `output.OpenItem`; it is in progress until it has a result."""
        del status
        tool = self._tool
        return McpCall(self._id, tool.server.label, tool.tool.name, "".join(self.parts))

    def begin(self, say: Say) -> None:
        """See `output.OpenItem`."""
        say(McpCallBegun(self._id, self._index))

    def end(self, say: Say) -> None:
        """See `output.OpenItem`."""
        say(McpArgumentsDone(self._id, self._index, "".join(self.parts)))


class OpenApproval:
    """A call that the client has to approve, while the model writes it."""

    kind = CallStart  # no event continues it: its arguments have no events

    def __init__(self, tool: OfferedTool) -> None:
        self._id = new_id("mcpr")
        self._tool = tool
        self.parts: list[str] = []

    def delta(self, text: str) -> None:
        """See `output.OpenItem`."""
        del text

    def item(self, status: ItemStatus) -> McpApprovalRequest:
        """See `output.OpenItem`."""
        del status
        tool = self._tool
        return McpApprovalRequest(self._id, tool.server.label, tool.tool.name, "".join(self.parts))

    def begin(self, say: Say) -> None:
        """See `output.OpenItem`."""
        del say

    def end(self, say: Say) -> None:
        """See `output.OpenItem`."""
        del say


def _listed_tool(offered: OfferedTool) -> McpListedTool:
    tool = offered.tool
    annotations = None if tool.annotations is None else dict(tool.annotations)
    return McpListedTool(tool.name, tool.description, dict(tool.parameters), annotations)
