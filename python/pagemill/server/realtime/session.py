"""A client's session: its events are obeyed in order, while a response may be in progress.

Each response is a chat of the conversation so far, so what chats can do, sessions can, and the
limits of the key count each as a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, cast

import msgspec

from pagemill.server.access.caller import Caller, admitted
from pagemill.server.answer import Socket, Talk
from pagemill.server.chat import start_chat
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.lifecycle import Phase
from pagemill.server.protocol.decode import explain
from pagemill.server.protocol.realtime import ClientEvent, EventError
from pagemill.server.realtime.conversation import Conversation, complete_items
from pagemill.server.realtime.response import RealtimeResponse
from pagemill.server.realtime.settings import MODALITIES, changed, request_of
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.input import Item
from pagemill.server.responses.request import chat_request, refuse_server_tools, renamed
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")
_LOOK_S = 0.5  # how often a session that waits looks at the server's phase
_IDLE, _GOING_AWAY = (1000, "idle"), (1001, "the server is shutting down")


class Session(Talk):
    """One connection's conversation."""

    def __init__(self, server: ServerState, caller: Caller, model: str | None) -> None:
        """Raises an ApiError if there is no such model for `caller`."""
        self._server = server
        self._caller = caller
        self._pipeline = server.models.resolve(model, caller).model
        self._id = new_id("sess")
        self._settings: dict[str, Any] = {}
        self._conversation = Conversation(server.config.max_body_bytes)
        self._conversation_id = new_id("conv")
        self._socket: Socket | None = None
        self._response: RealtimeResponse | None = None
        self._responding: asyncio.Task[None] | None = None

    async def run(self, socket: Socket) -> None:
        """Talks over `socket`; closes it at the end."""
        self._socket = socket
        self._say("session.created", {"session": self._described()})
        code, reason = 1011, "the server failed"
        try:
            code, reason = await self._obey(socket)
        finally:
            await self._stop_responding()
            await socket.close(code, reason)

    async def _obey(self, socket: Socket) -> tuple[int, str]:
        """Reads events until there are no more; returns why it closes the connection."""
        timeout_s = self._server.config.realtime_idle_timeout
        seen = time.monotonic()
        while True:
            try:
                message = await asyncio.wait_for(socket.receive(), _LOOK_S)
            except TimeoutError:
                is_idle = self._responding is None or self._responding.done()
                if not is_idle:
                    seen = time.monotonic()
                elif self._server.lifecycle.phase is Phase.DRAINING:
                    return _GOING_AWAY
                elif time.monotonic() - seen > timeout_s:
                    return _IDLE
                continue
            if message is None:
                return 1000, ""
            seen = time.monotonic()
            await socket.writable()
            await self._take(message)

    async def _take(self, message: bytes) -> None:
        """Obeys one event, or says why not."""
        event_id: str | None = None
        try:
            event = _decoded(message)
            event_id = event.event_id
            await self._dispatch(event)
        except ApiError as error:
            kind = "server_error" if error.status >= 500 else "invalid_request_error"
            code = error.type_name.replace(" ", "")
            said = EventError(
                type=kind, code=code, message=error.message, param=error.param, event_id=event_id
            )
            self._say("error", {"error": said})

    async def _dispatch(self, event: ClientEvent) -> None:
        conversation = self._conversation
        match event.type:
            case "session.update":
                settings = changed(self._settings, event.session)
                request_of(settings, [])
                self._settings = settings
                self._say("session.updated", {"session": self._described()})
            case "conversation.item.create":
                item, before = conversation.create(event.item, event.previous_item_id)
                for end in ("added", "done"):
                    fields = {"item": _realtime(item), "previous_item_id": before}
                    self._say(f"conversation.item.{end}", fields)
            case "conversation.item.retrieve":
                item = _realtime(conversation.get(event.item_id))
                self._say("conversation.item.retrieved", {"item": item})
            case "conversation.item.delete":
                conversation.delete(event.item_id)
                self._say("conversation.item.deleted", {"item_id": event.item_id})
            case "response.create":
                self._begin_response(event)
            case "response.cancel":
                await self._cancel_response(event)
            case _:
                raise bad_request(
                    f"Events of type {event.type[:100]!r} are not supported: sessions are of text.",
                    "type",
                )

    def _begin_response(self, event: ClientEvent) -> None:
        if self._responding is not None and not self._responding.done():
            raise bad_request("A response is in progress: wait for `response.done`, or cancel it.")
        sent = event.response
        settings = changed(self._settings, sent)
        is_apart = sent.get("conversation") == "none"
        items = self._conversation.items
        if sent.get("input") is not None:
            items = _input(sent["input"], self._conversation)
        request = request_of(settings, list(items))
        refuse_server_tools(request)
        chat = chat_request(request, list(items))
        conversation_id = None if is_apart else self._conversation_id
        self._response = RealtimeResponse(self._say, settings, conversation_id)
        self._responding = asyncio.create_task(self._respond(self._response, chat, is_apart))

    async def _respond(self, response: RealtimeResponse, chat: Any, is_apart: bool) -> None:
        assert self._socket is not None, "a client has asked for the response"
        response.begin()
        try:
            with renamed(), admitted(self._caller, self._server.limiter) as caller:
                generation = await start_chat(self._pipeline, chat, caller)
                try:
                    interval = self._server.config.stream_interval
                    await response.run(generation, self._socket, interval)
                    if generation.failure is not None:
                        raise generation.failure
                finally:
                    generation.close()
            response.complete()
        except asyncio.CancelledError:
            response.cancel("client_cancelled")
        except ApiError as error:
            response.fail(error.type_name.replace(" ", ""), error.message)
        except Exception:
            _LOGGER.exception("a realtime response failed")
            response.fail("InternalServerError", "The server failed; its log says more.")
        if not is_apart:
            for item in response.items:
                self._conversation.append(item)

    async def _cancel_response(self, event: ClientEvent) -> None:
        response = self._response
        is_other = event.response_id is not None and (
            response is None or event.response_id != response.id
        )
        if self._responding is None or self._responding.done() or is_other:
            raise bad_request("There is no such response in progress.", "response_id")
        await self._stop_responding()

    async def _stop_responding(self) -> None:
        if self._responding is not None:
            self._responding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._responding

    def _described(self) -> dict[str, Any]:
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": self._id,
            "model": self._pipeline.model.name,
            "output_modalities": MODALITIES,
            "instructions": "",
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            **self._settings,
        }

    def _say(self, kind: str, fields: dict[str, Any]) -> None:
        event = {"type": kind, "event_id": new_id("event"), **fields}
        if self._socket is not None:
            self._socket.send(msgspec.json.encode(event))


def _decoded(message: bytes) -> ClientEvent:
    try:
        return msgspec.json.decode(message, type=ClientEvent)
    except msgspec.ValidationError as error:
        text, param = explain(error)
        raise bad_request(text, param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request("An event is a JSON object with a `type`.") from error


def _input(sent: Any, conversation: Conversation) -> list[Item]:
    """The items of a response's own input; references are to items of the conversation."""
    listed = cast(list[Any], sent) if isinstance(sent, list) else [None]
    items: list[Item] = []
    for each in listed:
        if not isinstance(each, dict):
            raise bad_request("`input` must be a list of items.", "input")
        item = cast(Item, each)
        if item.get("type") == "item_reference":
            items.append(conversation.get(str(item.get("id"))))
        else:
            items += complete_items([item], "input")
    return items


def _realtime(item: Item) -> Item:
    return {"object": "realtime.item", **item}
