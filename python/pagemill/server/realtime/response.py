"""One response of a realtime session: a chat's generation, said as realtime events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pagemill.render.events import Reasoning
from pagemill.server.answer import Socket
from pagemill.server.generation import Generation
from pagemill.server.protocol.response_events import ItemAdded, ItemDone, ResponseEvent
from pagemill.server.realtime.deltas import deltas
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.input import Item
from pagemill.server.responses.output import OutputItems

Say = Callable[[str, dict[str, Any]], None]
"""(type, fields) -> an event to the client."""
_ITEM_EVENTS = (ItemAdded, ItemDone)
_REASONS = {"length": "max_output_tokens"}


class RealtimeResponse:
    """The response so far. Reasoning is generated, and not said."""

    def __init__(self, say: Say, settings: Mapping[str, Any], conversation_id: str | None) -> None:
        """`conversation_id` None: the response is not a part of the conversation."""
        self._say = say
        self._settings = settings
        self._conversation_id = conversation_id
        self._output = OutputItems(self._say_item_event)
        self._generation: Generation | None = None
        self._finish_reason = "abort"
        self.cancel_reason = "client_cancelled"
        self.id = new_id("resp")

    @property
    def items(self) -> list[Item]:
        """The items that are over."""
        return [_item(item) for item in self._output.items]

    def begin(self) -> None:
        """Says that the response is in progress."""
        self._say("response.created", {"response": self._fields("in_progress", None)})

    async def run(self, generation: Generation, socket: Socket, interval: int) -> None:
        """Says what is generated; returns at its end.

        Raises:
            ApiError: the generation failed.
        """
        self._generation = generation
        async for delta in deltas(generation, socket, interval):
            if delta.finish_reason is not None:
                self._finish_reason = delta.finish_reason
            for event in delta.events:
                if not isinstance(event, Reasoning):
                    self._output.add(event)

    def complete(self) -> None:
        """Says that the response is over as it should be, or was cut."""
        is_complete = self._finish_reason == "stop"
        self._output.end(complete=is_complete)
        reason = _REASONS.get(self._finish_reason, self._finish_reason)
        details = None if is_complete else {"type": "incomplete", "reason": reason}
        self._done("completed" if is_complete else "incomplete", details)

    def cancel(self) -> None:
        """Says that the response was cancelled, and the `cancel_reason`."""
        self._output.end(complete=False)
        self._done("cancelled", {"type": "cancelled", "reason": self.cancel_reason})

    def fail(self, code: str, message: str) -> None:
        """Says that the response failed."""
        self._output.end(complete=False)
        error = {"type": "server_error", "code": code, "message": message}
        self._done("failed", {"type": "failed", "error": error})

    def _done(self, status: str, details: dict[str, Any] | None) -> None:
        self._say("response.done", {"response": self._fields(status, details)})

    def _fields(self, status: str, details: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": self.items,
            "conversation_id": self._conversation_id,
            "output_modalities": ["text"],
            "max_output_tokens": self._settings.get("max_output_tokens", "inf"),
            "metadata": self._settings.get("metadata"),
            "usage": None if self._generation is None else _usage(self._generation),
        }

    def _say_item_event(self, event: ResponseEvent) -> None:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        kind = fields.pop("type")
        for name in ("sequence_number", "logprobs"):
            fields.pop(name, None)
        if "part" in fields:
            fields["part"] = {"type": "text", "text": fields["part"]["text"]}
        if isinstance(event, _ITEM_EVENTS):
            fields["item"] = _item(event.item)
        self._say(kind, {"response_id": self.id, **fields})
        if isinstance(event, _ITEM_EVENTS) and self._conversation_id is not None:
            end = "added" if isinstance(event, ItemAdded) else "done"
            self._say(f"conversation.item.{end}", {"item": fields["item"]})


def _item(item: msgspec.Struct) -> Item:
    return {"object": "realtime.item", **msgspec.to_builtins(item)}


def _usage(generation: Generation) -> dict[str, Any]:
    usage = generation.usage
    cached = usage.prompt_tokens_details.cached_tokens
    return {
        "total_tokens": usage.total_tokens,
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "input_token_details": {"cached_tokens": cached},
        "output_token_details": {"text_tokens": usage.completion_tokens},
    }
