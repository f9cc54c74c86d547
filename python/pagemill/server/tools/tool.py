"""What a server of tools has to offer; `mcp_server.McpServer` is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

TIMED_OUT = -32001
CLOSED = -32000
INVALID_ARGUMENTS = -32602
"""Codes of failures, as MCP numbers them."""


class ToolError(Exception):
    """Tools cannot be listed, or one cannot be called; the model reads the message."""

    def __init__(self, message: str, code: int = CLOSED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, as its server describes it; `parameters` is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    annotations: Mapping[str, Any] | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether the tool is said to change nothing."""
        return bool(self.annotations and self.annotations.get("readOnlyHint"))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: text for the model. `is_error`: the tool itself says that it failed."""

    text: str
    is_error: bool = False


class ToolServer(Protocol):
    """A server of tools. Implementations bound the time and the size of what they return."""

    @property
    def label(self) -> str:
        """The name by which requests ask for it."""
        ...

    @property
    def requires_approval(self) -> bool:
        """Whether every call needs the approval of the client, whatever a request says."""
        ...

    async def list_tools(self) -> Sequence[Tool]:
        """The tools that requests may use.

        Raises:
            ToolError: they cannot be listed.
        """
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Calls the tool `name`, which `list_tools` has returned.

        Raises:
            ToolError: there is no result.
        """
        ...

    async def close(self) -> None:
        """Ends what runs for it."""
        ...
