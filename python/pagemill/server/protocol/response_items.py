"""Items of a response's output."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pagemill.server.protocol.chat import ContentLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: list[str] = []
    logprobs: list[ContentLogprob] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """The text of a reasoning item."""

    text: str


class OutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """A part of the answer."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: str = "assistant"


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    """What the model thought before it answered."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[str] = []
    encrypted_content: None = None


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a tool; `arguments` is JSON, as far as the model wrote such."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class CustomToolCall(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A call of a tool whose input is any text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str


class McpListedTool(msgspec.Struct):
    """A tool of a server."""

    name: str
    description: str | None
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None = None


class McpListTools(msgspec.Struct, tag_field="type", tag="mcp_list_tools"):
    """The tools of a server that the model may call; `error`: why there are none."""

    id: str
    server_label: str
    tools: list[McpListedTool]
    error: str | None = None


class McpToolError(msgspec.Struct, tag_field="type", tag="mcp_tool_execution_error"):
    """A tool says that it failed."""

    content: list[dict[str, Any]]


class McpProtocolError(msgspec.Struct, tag_field="type", tag="mcp_protocol_error"):
    """A tool could not be called, or did not answer; `code` is one of MCP."""

    code: int
    message: str


class McpCall(msgspec.Struct, tag_field="type", tag="mcp_call"):
    """A call of a tool that the server runs."""

    id: str
    server_label: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    approval_request_id: str | None = None
    output: str | None = None
    error: McpToolError | McpProtocolError | None = None


class McpApprovalRequest(msgspec.Struct, tag_field="type", tag="mcp_approval_request"):
    """A call that the server makes if the client approves it."""

    id: str
    server_label: str
    name: str
    arguments: str


McpItem = McpListTools | McpCall | McpApprovalRequest
OutputItem = OutputMessage | ReasoningItem | FunctionCall | CustomToolCall | McpItem
