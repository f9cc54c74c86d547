"""Servers of tools without a process or a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pagemill.server.tools.tool import Tool, ToolError, ToolResult

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def written_call(city: str, name: str = "weather__get_weather") -> str:
    """A call as a model of the format `HERMES` writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


class FakeTools:
    """Implements `tool.ToolServer`: its tools are `get_weather`, `fail`, `raise` and `hang`."""

    def __init__(
        self,
        label: str = "weather",
        *,
        requires_approval: bool = False,
        listing: ToolError | None = None,
        padding: str = "",
    ) -> None:
        """`listing`: why the tools cannot be listed; `padding` is at the end of results."""
        self._label = label
        self._requires_approval = requires_approval
        self._listing = listing
        self._padding = padding
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.num_running = 0
        self.closed = False

    @property
    def label(self) -> str:
        """See `ToolServer`."""
        return self._label

    @property
    def requires_approval(self) -> bool:
        """See `ToolServer`."""
        return self._requires_approval

    async def list_tools(self) -> Sequence[Tool]:
        """See `ToolServer`."""
        await asyncio.sleep(0)
        if self._listing is not None:
            raise self._listing
        reads = {"readOnlyHint": True}
        return [
            Tool("get_weather", "The weather of a city.", SCHEMA, reads),
            *(Tool(name, None, SCHEMA) for name in ("fail", "raise", "hang")),
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """The arguments, except for the tools that fail."""
        self.calls.append((name, arguments))
        self.num_running += 1
        try:
            await asyncio.sleep(0)
            if name == "hang":
                await asyncio.Event().wait()
            if name == "raise":
                raise ToolError("The tool is gone.")
            return ToolResult(f"{arguments['city']}: rain{self._padding}", is_error=name == "fail")
        finally:
            self.num_running -= 1

    async def close(self) -> None:
        """See `ToolServer`."""
        self.closed = True
