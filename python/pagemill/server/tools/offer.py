"""Which tools of which servers a request lets the model call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagemill.server.errors import ApiError
from pagemill.server.protocol.chat import check_tools
from pagemill.server.tools.tool import Tool, ToolError, ToolServer

SEPARATOR = "__"
"""Between the name of a server, which has none, and that of a tool."""
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Some tools of a server: those with one of `names`, if there are any, and, with
    `read_only`, those that do, or do not, say that they change nothing."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def matches(self, tool: Tool) -> bool:
        """Whether `tool` is one of them."""
        if self.names is not None and tool.name not in self.names:
            return False
        return self.read_only is None or tool.is_read_only == self.read_only


ALL = ToolFilter()
NO_TOOL = ToolFilter(names=_NONE)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call."""

    server: ToolServer
    tool: Tool
    needs_approval: bool

    @property
    def function_name(self) -> str:
        """The name by which the model calls it."""
        return function_name(self.server.label, self.tool.name)

    @property
    def function(self) -> dict[str, Any]:
        """The tool as one of a chat request."""
        described = {"description": self.tool.description} if self.tool.description else {}
        function = {"name": self.function_name, **described, "parameters": self.tool.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Offer:
    """A server whose tools a request offers to the model.

    `free` tools are called without asking the client, if the server allows that. `is_new`: the
    conversation has no list of the server's tools yet.
    """

    server: ToolServer
    allowed: ToolFilter = ALL
    free: ToolFilter = NO_TOOL
    is_new: bool = True

    async def tools(self) -> list[OfferedTool]:
        """The server's tools that the request allows.

        Raises:
            ToolError: they cannot be listed, or the model cannot be shown one.
        """
        listed = [tool for tool in await self.server.list_tools() if self.allowed.matches(tool)]
        offered = [OfferedTool(self.server, tool, self._needs_approval(tool)) for tool in listed]
        try:
            check_tools([tool.function for tool in offered])
        except ApiError as error:
            raise ToolError(f"A tool of {self.server.label!r} has no name.") from error
        return offered

    def _needs_approval(self, tool: Tool) -> bool:
        return self.server.requires_approval or not self.free.matches(tool)


def function_name(label: str, tool: str) -> str:
    """The name by which a model calls a tool of the server `label`."""
    return f"{label}{SEPARATOR}{tool}"
