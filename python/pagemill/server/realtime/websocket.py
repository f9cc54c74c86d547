"""One WebSocket on the server's side: messages in, messages out, both bounded.

    socket = WebSocket.accept(scope, max_bytes)   # ApiError: the request is no handshake
    while (message := await socket.receive()) is not None:
        socket.send(b"...")
    await socket.close(1000, "")

The bytes of the protocol are those of the `websockets` package, which does no I/O here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagemill.server.answer import Talk
from pagemill.server.errors import ApiError
from pagemill.server.upgrade import KEY_HOLDS, UPGRADE, Upgrade

if TYPE_CHECKING:
    from websockets.server import ServerProtocol

MAX_MESSAGE_BYTES = 2**20
_PROTOCOL = "realtime"
_LOGGER = logging.getLogger("pagemill.server.websocket")
_LOGGER.setLevel(logging.WARNING)  # its debug messages have all headers, keys among them
_CLOSE_S = 10.0  # until the client has to have closed its side


class WebSocket:
    """Implements `upgrade.Taker`. Event loop only."""

    def __init__(
        self, connection: Upgrade, protocol: ServerProtocol, key_holds: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._protocol = protocol
        self._key_holds = key_holds
        self._transport = connection.take(self)
        self._parts: list[bytes] = []
        self._messages: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._over = False  # no message comes any more
        self._write()

    @classmethod
    def accept(cls, scope: Any, max_bytes: int) -> WebSocket:
        """Answers the handshake of a request. A message has at most `max_bytes`.

        Raises:
            ApiError: 426 or 400: it is not one.
        """
        # Here, because most servers are never asked for a WebSocket.
        from websockets.http11 import Request
        from websockets.server import ServerProtocol

        connection: Upgrade | None = scope["state"].get(UPGRADE)
        names = {name for name, _ in scope["headers"]}
        if connection is None or b"upgrade" not in names:
            raise ApiError(426, "This route is a WebSocket: connect to it with such a client.")
        protocol = ServerProtocol(
            max_size=max_bytes, select_subprotocol=_subprotocol, logger=_LOGGER
        )
        head = b"".join(b"%b: %b\r\n" % header for header in scope["headers"])
        protocol.receive_data(b"GET / HTTP/1.1\r\n%b\r\n" % head)
        events = protocol.events_received()
        if not events or not isinstance(events[0], Request):
            raise ApiError(400, "The handshake of the WebSocket is not valid.")
        response = protocol.accept(events[0])
        if response.status_code != 101:
            raise ApiError(400, "The handshake of the WebSocket is not valid.")
        response.headers["X-Request-Id"] = scope["state"]["request_id"]
        protocol.send_response(response)
        return cls(connection, protocol, scope["state"][KEY_HOLDS])

    @property
    def is_full(self) -> bool:
        """Whether the client has taken too little of what was sent to be sent more."""
        return self._connection.is_full and not self._over

    @property
    def is_over(self) -> bool:
        """Whether the client has closed the connection, or is gone."""
        return self._over

    @property
    def is_allowed(self) -> bool:
        """Whether the key that the client connected with is still valid."""
        return self._key_holds()

    async def receive(self) -> bytes | None:
        """The next message, text or not; None once the connection is closed."""
        while not self._messages:
            if self._over:
                return None
            self._news.clear()
            self._read_if_free()
            await self._news.wait()
        return self._messages.popleft()

    def send(self, message: bytes) -> None:
        """Sends a text, in UTF-8. Nothing happens if the connection is closed."""
        if not self._over:
            self._protocol.send_text(message)
            self._write()

    async def writable(self) -> None:
        """Waits until the client has taken most of what was sent."""
        while self.is_full:
            self._writable.clear()
            await self._writable.wait()

    async def close(self, code: int, reason: str) -> None:
        """Closes the connection, and returns when it is gone."""
        if not self._over:
            self._over = True
            self._protocol.send_close(code, reason)
            self._write()
            self._transport.resume_reading()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), _CLOSE_S)
        self._transport.abort()
        await self._lost.wait()

    def data_received(self, data: bytes) -> None:
        """See `upgrade.Taker`."""
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            self._add(frame)
        self._write()
        if self._protocol.close_expected():
            self._end()
            self._transport.close()
        elif self._messages or self._connection.is_full:
            self._transport.pause_reading()

    def resumed(self) -> None:
        """See `upgrade.Taker`."""
        self._writable.set()
        self._read_if_free()

    def lost(self) -> None:
        """See `upgrade.Taker`."""
        self._lost.set()
        self._end()

    def _add(self, frame: Any) -> None:
        from websockets.frames import Opcode

        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) and not self._over:
            if frame.data:  # a message may have any number of empty parts
                self._parts.append(bytes(frame.data))
            if frame.fin:
                self._messages.append(b"".join(self._parts))
                self._parts.clear()
                self._news.set()

    def _read_if_free(self) -> None:
        if not (self._messages or self._connection.is_full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _end(self) -> None:
        self._over = True
        self._news.set()
        self._writable.set()

    def _write(self) -> None:
        """Writes what the protocol has to say: answers to pings and closes among it."""
        data = b"".join(self._protocol.data_to_send())
        if data and not self._transport.is_closing():
            self._transport.write(data)


def _subprotocol(protocol: ServerProtocol, offered: Sequence[Any]) -> Any:
    """The one of those `offered` that is not a key: pages need one of theirs to be chosen."""
    del protocol
    return _PROTOCOL if _PROTOCOL in offered else None


class _Nothing(Response):
    """The rest of a response whose connection is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""


async def converse(talk: Talk, request: Request) -> Response:
    """Answers the handshake, and returns at the end of `talk`.

    Raises:
        ApiError: the request is not a handshake.
    """
    socket = WebSocket.accept(request.scope, MAX_MESSAGE_BYTES)
    request.scope["state"]["status"] = 101  # for the request's record
    await talk.run(socket)
    return _Nothing(status_code=101)
