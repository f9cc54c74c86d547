"""Responses of a session: chats of its conversation, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pagemill.server.access.caller import Caller, admitted
from pagemill.server.answer import Socket
from pagemill.server.chat import start_chat
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.realtime.conversation import Conversation
from pagemill.server.realtime.response import RealtimeResponse, Say
from pagemill.server.realtime.settings import request_of
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.input import Item
from pagemill.server.responses.request import chat_request, refuse_server_tools, renamed
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")


class Responder:
    """Of one session. Belongs to one event loop."""

    def __init__(
        self,
        server: ServerState,
        caller: Caller,
        pipeline: Pipeline,
        conversation: Conversation,
        say: Say,
    ) -> None:
        self._server = server
        self._caller = caller
        self._pipeline = pipeline
        self._conversation = conversation
        self._conversation_id = new_id("conv")
        self._say = say
        self._response: RealtimeResponse | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a response is in progress."""
        return self._running is not None and not self._running.done()

    def begin(
        self, settings: Mapping[str, Any], items: Sequence[Item], socket: Socket, *, is_apart: bool
    ) -> None:
        """Begins a response to `items`; `is_apart`: it is no part of the conversation.

        Raises:
            ApiError: 400: one is in progress, or this one cannot be served.
        """
        if self.is_busy:
            raise bad_request("A response is in progress: wait for `response.done`, or cancel it.")
        request = request_of(settings, list(items))
        refuse_server_tools(request)
        chat = chat_request(request, items)
        conversation_id = None if is_apart else self._conversation_id
        response = RealtimeResponse(self._say, settings, conversation_id)
        self._response = response
        self._running = asyncio.create_task(self._respond(response, chat, socket, is_apart))

    async def cancel(self, response_id: str | None) -> None:
        """Ends the response in progress, which has this id; None: any.

        Raises:
            ApiError: 400: there is none.
        """
        response = self._response
        is_other = response_id is not None and (response is None or response_id != response.id)
        if not self.is_busy or is_other:
            raise bad_request("There is no such response in progress.", "response_id")
        await self.stop()

    async def stop(self, reason: str = "client_cancelled") -> None:
        """Ends the response in progress, if there is one, for this reason."""
        if self._running is not None and self._response is not None:
            self._response.cancel_reason = reason
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def _respond(
        self, response: RealtimeResponse, chat: ChatRequest, socket: Socket, is_apart: bool
    ) -> None:
        response.begin()
        asking = replace(self._caller, began=time.monotonic())
        try:
            with renamed(), admitted(asking, self._server.limiter) as caller:
                generation = await start_chat(self._pipeline, chat, caller)
                try:
                    await response.run(generation, socket, self._server.config.stream_interval)
                finally:
                    generation.close()
            response.complete()
        except asyncio.CancelledError:
            response.cancel()
        except ApiError as error:
            response.fail(error.type_name.replace(" ", ""), error.message)
        except Exception:
            _LOGGER.exception("a realtime response failed")
            response.fail("InternalServerError", "The server failed; its log says more.")
        if not is_apart:
            for item in response.items:
                self._conversation.append(item)
