"""HTTP/1.1 connections with bounds on what arrives before a request is complete.

uvicorn's protocol keeps header lines, trailers and pipelined requests without limit, and waits for
them forever. This one counts what it feeds to the parser, has a time for each thing it waits for,
and reports the error as the API does. A key is checked later, so that everything here is
open to anyone who can reach the port: the memory of a connection is at most `max_header_bytes` and
some pieces, and uvicorn's flow control bounds what it buffers of a body.
"""

from __future__ import annotations

import asyncio
import enum
import secrets
from dataclasses import dataclass
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState as UvicornState

from pagemill.config import ConnectionConfig
from pagemill.server.errors import ApiError
from pagemill.server.event_stream import BODY_WRITER
from pagemill.server.http_answer import error_response
from pagemill.server.transport.connections import (
    LEAST_SENT_BYTES,
    Closable,
    Connections,
    Room,
    address_of,
)
from pagemill.server.transport.joined_writes import JoinedWrites
from pagemill.server.upgrade import UPGRADE, Taker

# The parser is fed so many bytes at a time: what it keeps is known that exactly.
_PIECE_BYTES = 16 * 1024
_MAX_HEADERS = 256
_MAX_PIPELINED = 16
# How long the rest of a body is read and dropped that was refused before it was complete: a client
# that still sends would otherwise lose the response to a connection reset.
_DROP_BODY_S = 5.0


class _Wait(enum.IntEnum):
    """What the timer of a connection is for."""

    HEAD = 0
    BODY = 1
    DROPPED_BODY = 2


@dataclass(slots=True)
class _Received:
    """What came of the request that the parser is at."""

    begun: bool = False  # its first byte came
    head_complete: bool = False
    unused_bytes: int = 0  # since the last byte that began a request or was part of a body


class _BodyWriter:
    """Writes parts of one response's body without a coroutine; see `event_stream.BodyWriter`."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def write(self, data: bytes) -> bool:
        """Writes `data`, a part that is not the last; False if it takes `send` to."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True


class _Upgrade:
    """Implements `upgrade.Upgrade`."""

    def __init__(self, connection: BoundedHttpProtocol) -> None:
        self._connection = connection

    @property
    def is_full(self) -> bool:
        """See `upgrade.Upgrade`."""
        return self._connection.flow.write_paused

    def take(self, taker: Taker) -> asyncio.Transport:
        """See `upgrade.Upgrade`."""
        return self._connection.hand_over(taker)


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. See the file's comment."""

    def __init__(  # noqa: PLR0913 - the first four are uvicorn's
        self,
        config: uvicorn.Config,
        server_state: UvicornState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionConfig,
        connections: Connections,
        handshake: Closable | None = None,
    ) -> None:
        """`handshake` is what this connection was among `connections` before it was encrypted."""
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._connections = connections
        self._handshake = handshake
        self._received = _Received()
        self.headers = []
        self._seconds = (limits.header_timeout, limits.body_timeout, _DROP_BODY_S)  # by _Wait
        self._refusal: ApiError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wait: _Wait | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0  # when that timer was started
        self._taker: Taker | None = None

    # The transport's calls.

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Starts the clock, or refuses the connection."""
        super().connection_made(transport)
        descriptor = transport.get_extra_info("socket").fileno()
        if self._handshake is not None:
            self._connections.closed(self._handshake)
        peer = transport.get_extra_info("peername")
        room = self._connections.opened(self, descriptor, address_of(peer))
        if room is Room.TAKEN:
            self._await(_Wait.HEAD)
        else:
            self._refuse(room.refusal())

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._await(None)
        self._watch_sending(False)
        self._connections.closed(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._taker is not None:
            self._taker.lost()

    def pause_writing(self) -> None:
        """The client takes less than there is."""
        super().pause_writing()
        self._watch_sending(True)

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._watch_sending(False)
        if self._taker is not None:
            self._taker.resumed()

    def hand_over(self, taker: Taker) -> asyncio.Transport:
        """From now on `taker` gets what comes. How much is sent, and how slowly it is taken, is
        bounded as before."""
        self._await(None)
        self._taker = taker
        return self.transport

    def data_received(self, data: bytes) -> None:
        """Parses, counts, and restarts the clock."""
        if self._taker is not None:
            self._taker.data_received(data)
            return
        self._unset_keepalive_if_required()
        view = memoryview(data)
        try:
            for start in range(0, len(view), _PIECE_BYTES):
                if self.transport.is_closing():
                    return
                self._feed(view[start : start + _PIECE_BYTES])
        except httptools.HttpParserError:
            self._refuse(self._refusal or ApiError(400, "This is not a valid HTTP/1.1 request."))
            return
        self._choose_wait()

    # The parser's calls.

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._is_answering() and len(self.pipeline) >= _MAX_PIPELINED:
            self._stop(ApiError(400, f"More than {_MAX_PIPELINED} requests are pipelined."))
        self._received = _Received(begun=True)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The request starts to be answered, or is queued behind others of the connection."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.max_header_bytes:
            self._stop(self._too_large())
        self._check_number_of_headers()
        super().on_headers_complete()
        JoinedWrites.install(self.cycle)
        state = self.scope.setdefault("state", {})
        state[BODY_WRITER] = _BodyWriter(self.cycle)
        state[UPGRADE] = _Upgrade(self)
        self.headers = []  # trailers come into this one, and no further
        self._received.head_complete = True
        self._connections.became_busy(self)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._received.unused_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        super().on_message_complete()
        self._received = _Received()

    def on_response_complete(self) -> None:
        """The next request may come, after the rest of this one's body."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_sending(True)
            return
        if self._is_answering():
            return
        self._connections.became_idle(self)
        if self._received.head_complete:
            self._unset_keepalive_if_required()
            self._await(_Wait.DROPPED_BODY)

    def close_idle(self) -> None:
        """Makes room for another connection."""
        self._close()

    def timeout_keep_alive_handler(self) -> None:
        """No request came for long."""
        super().timeout_keep_alive_handler()
        self._watch_sending(self.transport.is_closing())

    def _feed(self, piece: memoryview) -> None:
        received = self._received
        received.unused_bytes += len(piece)
        assert self.parser is not None, "the connection is open"
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is spoken: the request is answered, and others may follow.
            rest = piece[upgrade.args[0] :]
            if rest:
                self._feed(rest)
            return
        if self._received is received and received.unused_bytes > self._limits.max_header_bytes:
            self._stop(self._too_large())
        self._check_number_of_headers()

    def _check_number_of_headers(self) -> None:
        if len(self.headers) > _MAX_HEADERS:
            self._stop(ApiError(431, f"The request has more than {_MAX_HEADERS} headers."))

    def _too_large(self) -> ApiError:
        limit = self._limits.max_header_bytes
        return ApiError(
            431, f"The request's headers are larger than {limit} bytes (--max-header-bytes)."
        )

    def _stop(self, refusal: ApiError) -> None:
        """Ends parsing; `data_received` answers with `refusal`."""
        self._refusal = refusal
        raise httptools.HttpParserError

    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _is_answering_earlier(self) -> bool:
        """True if a request before the one that the parser is at has no complete response."""
        return self._is_answering() and (bool(self.pipeline) or not self._received.head_complete)

    # Time.

    def _choose_wait(self) -> None:
        if self._received.head_complete:
            if self._wait is not _Wait.DROPPED_BODY:
                self._await(_Wait.BODY)
        elif self._received.begun or not self._is_answering():
            if self._wait is not _Wait.HEAD:
                self._await(_Wait.HEAD)
        else:
            self._await(None)

    def _await(self, wait: _Wait | None) -> None:
        """Starts the time of `wait`; None: the client owes nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wait = None, wait
        if wait is not None:
            self._timer = self.loop.call_later(self._seconds[wait], self._on_timeout)

    def _on_timeout(self) -> None:
        wait = self._wait
        if self.flow.read_paused or self._is_answering_earlier():
            self._await(wait)  # the client waits for the server
        elif wait is _Wait.DROPPED_BODY or not self._received.begun:
            self._close()
        elif wait is _Wait.HEAD:
            self._refuse(_timeout("headers", "--header-timeout", self._limits.header_timeout))
        else:
            self._refuse(_timeout("body", "--body-timeout", self._limits.body_timeout))

    def _refuse(self, error: ApiError) -> None:
        """Answers with `error`, unless a response has begun, and closes the connection."""
        self._await(None)
        if self.transport.is_closing():
            return
        self._connections.refusals.warning(
            f"Closed a connection with HTTP status {error.status}: {error.message}"
        )
        has_begun = self._is_answering() and self.cycle.response_started
        if not has_begun and not self._is_answering_earlier():
            self.transport.write(_closing_response(error))
        self._close()

    def _close(self) -> None:
        """Closes the connection once the client has taken the rest, or does not."""
        self.transport.close()
        self._watch_sending(True)

    def _watch_sending(self, watched: bool) -> None:
        """Starts or stops the time in which the client has to take a part of what waits."""
        if not watched:
            if self._send_timer is not None:
                self._send_timer.cancel()
            self._send_timer = None
        elif self._send_timer is None:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._send_timer = self.loop.call_later(self._limits.send_timeout, self._check_sending)

    def _check_sending(self) -> None:
        self._send_timer = None
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes and self._unsent_bytes - unsent_bytes < LEAST_SENT_BYTES:
            self._connections.slow_reader(unsent_bytes, self._limits.send_timeout)
            self.transport.abort()
        elif unsent_bytes:
            self._watch_sending(True)


def _timeout(what: str, flag: str, seconds: float) -> ApiError:
    return ApiError(408, f"The request's {what} did not come within {seconds:g} s ({flag}).")


def _closing_response(error: ApiError) -> bytes:
    response = error_response(error)
    headers = [
        *response.raw_headers,
        (b"connection", b"close"),
        (b"x-request-id", secrets.token_hex(16).encode()),
    ]
    lines = [STATUS_LINE[error.status]]
    lines += [b"%s: %s\r\n" % header for header in headers]
    return b"".join([*lines, b"\r\n", bytes(response.body)])
