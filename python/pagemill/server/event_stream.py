"""Server-sent events as an ASGI response, written for one event per token.

Bytes go from the engine's output to the connection within one call: no task, future or generator
runs for a token while the connection takes what it is given. A connection that is full makes `send`
wait; a task waits for it then, and outputs merge meanwhile. While there is nothing to say, a stream
says so from time to time: proxies close connections that are silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Generator
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagemill.server.answer import Events
from pagemill.server.disconnect import until_disconnect

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events defeats their purpose
]
_IDLE_S = 10.0
BODY_WRITER = "body_writer"
"""Key of the ASGI scope's state under which an HTTP server offers a `BodyWriter`."""


class BodyWriter(Protocol):
    """Writes parts of a body within the call, past the layers that see the response's head.

    `write` returns False, and has written nothing, if the connection is full or gone: the part then
    goes through `send`, which waits.
    """

    def write(self, data: bytes) -> bool: ...


class EventStream(Response):
    """Streams `source`; closes it when the response is over, however it ends."""

    def __init__(self, source: Events, idle_event: bytes) -> None:
        """`idle_event` is said while `source` has nothing."""
        self._source = source
        self._idle_event = idle_event
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        try:
            with contextlib.suppress(ClientDisconnect):  # the client has gone
                body: BodyWriter | None = scope.get("state", {}).get(BODY_WRITER)
                await until_disconnect(self._write(send, body), receive)
        finally:
            self._source.close()

    async def _write(self, send: Send, body: BodyWriter | None) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        writer = _Writer(self._source, send, body, self._idle_event)
        self._source.listen(writer.pump)
        try:
            writer.pump()
            await writer.ended
        finally:
            writer.close()


class _Writer:
    """Moves bytes from a source to the connection."""

    def __init__(
        self, source: Events, send: Send, body: BodyWriter | None, idle_event: bytes
    ) -> None:
        self._source = source
        self._send = send
        self._body = body
        self._idle_event = idle_event
        self._has_said = True  # anything since the last look
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(_IDLE_S, self._look_if_idle)
        self._waiting: asyncio.Task[None] | None = None  # for a connection that is full
        self.ended: asyncio.Future[None] = loop.create_future()

    def pump(self) -> None:
        """Sends what there is, unless the connection is full."""
        if self._waiting is None and not self.ended.done():
            self._move(behind=False)

    def close(self) -> None:
        """Sends nothing more."""
        self.ended.cancel()
        self._look.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    def _look_if_idle(self) -> None:
        if not (self._has_said or self._waiting or self.ended.done()):
            self._write(self._idle_event)
        self._has_said = False
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(_IDLE_S, self._look_if_idle)

    def _move(self, behind: bool) -> None:
        data = self._source.take(behind)
        if data or self._source.ended:
            self._write(data)

    def _write(self, data: bytes) -> None:
        source = self._source
        self._has_said = True
        if not source.ended and self._body and self._body.write(data):
            return
        message = {"type": "http.response.body", "body": data, "more_body": not source.ended}
        sending: Generator[Any, Any, None] = self._send(message).__await__()
        try:
            waits_for = next(sending)
        except StopIteration:
            if source.ended:
                self.ended.set_result(None)
        except Exception as error:
            self.ended.set_exception(error)
        else:
            self._waiting = asyncio.create_task(_resume(sending, waits_for))
            self._waiting.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._waiting = None
        if self.ended.done() or task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.ended.set_exception(error)
        elif self._source.ended:
            self.ended.set_result(None)
        else:
            self._move(behind=True)


async def _resume(sending: Generator[Any, Any, None], waits_for: Any) -> None:
    """Awaits the rest of `sending`, which yielded `waits_for` to its caller."""
    await _rest(sending, waits_for)


@types.coroutine
def _rest(sending: Generator[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    yield waits_for
    yield from sending
