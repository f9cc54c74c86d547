"""Custom tools, whose input is any text: functions with that text as their one argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pagemill.render.events import CallStart
from pagemill.server.errors import bad_request
from pagemill.server.protocol.response_events import CustomInputDelta, CustomInputDone
from pagemill.server.protocol.response_items import CustomToolCall, ItemStatus
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.tool_items import Say


class _Arguments(msgspec.Struct):
    """The function's arguments."""

    input: str


def custom_names(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The names of the custom tools among `tools`, which have been checked."""
    return frozenset(tool["name"] for tool in tools if tool.get("type") == "custom")


def custom_function(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The tool as a function of a chat.

    Raises:
        ApiError: 400 naming what is wrong.
    """
    text: dict[str, Any] = {"type": "string"}
    function: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    match tool.get("format"):
        case None | {"type": "text"}:
            pass
        case {"type": "grammar", "syntax": "regex", "definition": str(expression)}:
            text["pattern"] = f"^({expression})$"
            function["strict"] = True
        case _:
            raise bad_request(
                f"`{where}.format` must be of type `text`, or of type `grammar` with the `syntax`"
                " `regex` and a `definition`. Grammars in Lark are not supported.",
                "tools",
            )
    parameters = {"type": "object", "properties": {"input": text}, "required": ["input"]}
    function["parameters"] = {**parameters, "additionalProperties": False}
    return {"type": "function", "function": function}


def custom_arguments(text: str) -> str:
    """The function's arguments for the input `text`."""
    return msgspec.json.encode(_Arguments(text)).decode()


class OpenCustomCall:
    """A call of a custom tool, while the model writes it. Its input is said when it is whole."""

    kind = CallStart  # no event continues it: its arguments have no events

    def __init__(self, index: int, call: CallStart) -> None:
        self._index = index
        self._id = new_id("ctc")
        self._name = call.name
        self._call_id = call.id or new_id("call")
        self.parts: list[str] = []

    def delta(self, text: str) -> None:
        """See `output.OpenItem`."""
        del text

    def item(self, status: ItemStatus) -> CustomToolCall:
        """See `output.OpenItem`."""
        return CustomToolCall(self._id, status, self._call_id, self._name, self._input())

    def begin(self, say: Say) -> None:
        """See `output.OpenItem`."""
        del say

    def end(self, say: Say) -> None:
        """See `output.OpenItem`."""
        text = self._input()
        say(CustomInputDelta(self._id, self._index, text))
        say(CustomInputDone(self._id, self._index, text))

    def _input(self) -> str:
        """The input; what the model wrote in its place, if that has none."""
        written = "".join(self.parts)
        try:
            return msgspec.json.decode(written, type=_Arguments).input
        except (msgspec.DecodeError, RecursionError):
            return written
