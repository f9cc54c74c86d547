"""Events of a streamed response; `type` is first and `sequence_number` last in each."""

from __future__ import annotations

import msgspec

from pagemill.server.protocol.chat import ContentLogprob
from pagemill.server.protocol.response_items import (
    OutputItem,
    OutputText,
    ReasoningText,
)
from pagemill.server.protocol.responses import Response


class ResponseCreated(msgspec.Struct, tag_field="type", tag="response.created"):
    """The first event."""

    response: Response
    sequence_number: int = 0


class ResponseInProgress(msgspec.Struct, tag_field="type", tag="response.in_progress"):
    """The second event."""

    response: Response
    sequence_number: int = 0


class ResponseCompleted(msgspec.Struct, tag_field="type", tag="response.completed"):
    """The last event of a complete response."""

    response: Response
    sequence_number: int = 0


class ResponseIncomplete(msgspec.Struct, tag_field="type", tag="response.incomplete"):
    """The last event of a response that ended early."""

    response: Response
    sequence_number: int = 0


class ResponseFailed(msgspec.Struct, tag_field="type", tag="response.failed"):
    """The last event of a response that failed."""

    response: Response
    sequence_number: int = 0


class StreamError(msgspec.Struct, tag_field="type", tag="error"):
    """Why the response fails."""

    code: str | None
    message: str
    param: str | None
    sequence_number: int = 0


class ItemAdded(msgspec.Struct, tag_field="type", tag="response.output_item.added"):
    """An item begins."""

    output_index: int
    item: OutputItem
    sequence_number: int = 0


class ItemDone(msgspec.Struct, tag_field="type", tag="response.output_item.done"):
    """The item is over."""

    output_index: int
    item: OutputItem
    sequence_number: int = 0


class PartAdded(msgspec.Struct, tag_field="type", tag="response.content_part.added"):
    """The text of a message begins."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText
    sequence_number: int = 0


class PartDone(msgspec.Struct, tag_field="type", tag="response.content_part.done"):
    """The text of a message is over."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText
    sequence_number: int = 0


class TextDelta(msgspec.Struct, tag_field="type", tag="response.output_text.delta"):
    """A part of a message's text."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[ContentLogprob] = []
    sequence_number: int = 0


class TextDone(msgspec.Struct, tag_field="type", tag="response.output_text.done"):
    """The whole text of a message."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[ContentLogprob] = []
    sequence_number: int = 0


class ReasoningPartAdded(msgspec.Struct, tag_field="type", tag="response.reasoning_part.added"):
    """The text of a reasoning item begins."""

    item_id: str
    output_index: int
    content_index: int
    part: ReasoningText
    sequence_number: int = 0


class ReasoningPartDone(msgspec.Struct, tag_field="type", tag="response.reasoning_part.done"):
    """The text of a reasoning item is over."""

    item_id: str
    output_index: int
    content_index: int
    part: ReasoningText
    sequence_number: int = 0


class ReasoningDelta(msgspec.Struct, tag_field="type", tag="response.reasoning_text.delta"):
    """A part of the reasoning's text."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    sequence_number: int = 0


class ReasoningDone(msgspec.Struct, tag_field="type", tag="response.reasoning_text.done"):
    """The whole text of the reasoning."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    sequence_number: int = 0


class ArgumentsDelta(
    msgspec.Struct, tag_field="type", tag="response.function_call_arguments.delta"
):
    """A part of a call's arguments."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int = 0


class ArgumentsDone(msgspec.Struct, tag_field="type", tag="response.function_call_arguments.done"):
    """The whole arguments of a call."""

    item_id: str
    output_index: int
    name: str
    arguments: str
    sequence_number: int = 0


class CustomInputDelta(
    msgspec.Struct, tag_field="type", tag="response.custom_tool_call_input.delta"
):
    """A part of the input of a custom tool."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int = 0


class CustomInputDone(msgspec.Struct, tag_field="type", tag="response.custom_tool_call_input.done"):
    """The whole input of a custom tool."""

    item_id: str
    output_index: int
    input: str
    sequence_number: int = 0


class McpArgumentsDelta(msgspec.Struct, tag_field="type", tag="response.mcp_call_arguments.delta"):
    """A part of the arguments of a call of a tool that the server runs."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int = 0


class McpArgumentsDone(msgspec.Struct, tag_field="type", tag="response.mcp_call_arguments.done"):
    """The whole arguments of such a call."""

    item_id: str
    output_index: int
    arguments: str
    sequence_number: int = 0


class McpListBegun(msgspec.Struct, tag_field="type", tag="response.mcp_list_tools.in_progress"):
    """Tools of a server are being listed."""

    item_id: str
    output_index: int
    sequence_number: int = 0


class McpListCompleted(msgspec.Struct, tag_field="type", tag="response.mcp_list_tools.completed"):
    """The tools are listed."""

    item_id: str
    output_index: int
    sequence_number: int = 0


class McpListFailed(msgspec.Struct, tag_field="type", tag="response.mcp_list_tools.failed"):
    """The tools cannot be listed."""

    item_id: str
    output_index: int
    sequence_number: int = 0


class McpCallBegun(msgspec.Struct, tag_field="type", tag="response.mcp_call.in_progress"):
    """A call of a tool that the server runs begins."""

    item_id: str
    output_index: int
    sequence_number: int = 0


class McpCallCompleted(msgspec.Struct, tag_field="type", tag="response.mcp_call.completed"):
    """The call has a result."""

    item_id: str
    output_index: int
    sequence_number: int = 0


class McpCallFailed(msgspec.Struct, tag_field="type", tag="response.mcp_call.failed"):
    """The call failed."""

    item_id: str
    output_index: int
    sequence_number: int = 0


McpEvent = (
    McpArgumentsDone
    | McpListBegun
    | McpListCompleted
    | McpListFailed
    | McpCallBegun
    | McpCallCompleted
    | McpCallFailed
)
DeltaEvent = TextDelta | ReasoningDelta | ArgumentsDelta | McpArgumentsDelta
ResponseEvent = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | StreamError
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDone
    | ReasoningPartAdded
    | ReasoningPartDone
    | ReasoningDone
    | ArgumentsDone
    | CustomInputDelta
    | CustomInputDone
    | McpEvent
    | DeltaEvent
)
