"""`tool_choice` of a chat with tools that the server runs, whose names are known late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pagemill.server.tools.offer import OfferedTool

Choice = str | dict[str, Any] | None


def of_offered(choice: Choice, offered: Iterable[OfferedTool]) -> Choice:
    """`choice` with functions in place of tools of servers: `{"type": "mcp", "server_label": L}`
    stands for all those of L, and with a `name` for one. If none could be listed, all is free."""
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}:
            offered = list(offered)
            named = [each for tool in tools for each in _named(tool, offered)]
            if tools and not named:
                return "auto"
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
        case _:
            return choice


def after_calls(choice: Choice) -> Choice:
    """The choice of the next turn: what had to be called was."""
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"tools": tools}}:
            return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
        case _:
            return "auto"


def without_calls(clients: Sequence[str]) -> Choice:
    """The choice of a turn in which only the tools `clients` may be called."""
    if not clients:
        return "none"
    tools = [{"type": "function", "name": name} for name in clients]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


def _named(tool: Any, offered: Sequence[OfferedTool]) -> list[Any]:
    match tool:
        case {"type": "mcp", "server_label": label}:
            name = tool.get("name")
            return [
                {"type": "function", "name": each.function_name}
                for each in offered
                if each.server.label == label and name in (None, each.tool.name)
            ]
        case _:
            return [tool]
