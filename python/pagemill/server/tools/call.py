"""A call of a tool that a loop meets, as a message of a chat has it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pagemill.render.events import Call, Message
from pagemill.server.tools.offer import OfferedTool, function_name
from pagemill.server.tools.tool import INVALID_ARGUMENTS, ToolError, ToolResult

Outcome = ToolResult | ToolError


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call of an earlier response that the client has approved."""

    server_label: str
    name: str
    arguments: str
    approval_id: str


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A call; `tool` None: no server that the request offers has it."""

    id: str
    name: str
    arguments: str
    tool: OfferedTool | None
    is_complete: bool = True
    is_approved: bool = False

    @classmethod
    def of_model(cls, call: Call, tools: Mapping[str, OfferedTool]) -> LoopCall:
        """A call that the model has made."""
        call_id = call.id or f"call_{secrets.token_hex(12)}"
        return cls(call_id, call.name, call.arguments, tools.get(call.name), call.complete)

    @classmethod
    def of_client(cls, call: ApprovedCall, tools: Mapping[str, OfferedTool]) -> LoopCall:
        """A call that the client has approved."""
        name = function_name(call.server_label, call.name)
        tool = tools.get(name)
        return cls(call.approval_id, name, call.arguments, tool, is_approved=True)

    @property
    def is_servers(self) -> bool:
        """Whether it is of a tool that the server runs."""
        return self.tool is not None or self.is_approved

    @property
    def may_run(self) -> bool:
        """Whether the server makes the call; otherwise the client has to make or approve it."""
        return self.is_approved or (self.tool is not None and not self.tool.needs_approval)

    @property
    def written(self) -> dict[str, Any]:
        """The call in the assistant's message."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    def answered(self, outcome: Outcome) -> dict[str, Any]:
        """The message with the call's outcome."""
        text = outcome_text(outcome)
        return {"role": "tool", "tool_call_id": self.id, "name": self.name, "content": text}

    def parsed(self) -> tuple[OfferedTool, dict[str, Any]]:
        """The tool and its arguments.

        Raises:
            ToolError: the call cannot be made.
        """
        if self.tool is None:
            raise ToolError(f"There is no tool {self.name[:100]!r}.", INVALID_ARGUMENTS)
        text = self.arguments.strip() or "{}"
        try:
            if self.is_complete:
                return self.tool, msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass
        raise ToolError("The arguments of the call are not a JSON object.", INVALID_ARGUMENTS)


def outcome_text(outcome: Outcome) -> str:
    """What the model reads. Chat templates know no errors, so the text says that it is one."""
    if isinstance(outcome, ToolResult):
        return f"Error: {outcome.text}" if outcome.is_error else outcome.text
    return f"Error: {outcome.message}"


def said(turn: Message, calls: Sequence[LoopCall]) -> dict[str, Any]:
    """The assistant's message of a turn that ends in `calls`."""
    reasoning = {"reasoning": turn.reasoning} if turn.reasoning else {}
    written = [call.written for call in calls]
    return {
        "role": "assistant",
        "content": turn.text or None,
        **reasoning,
        "tool_calls": written,
    }
