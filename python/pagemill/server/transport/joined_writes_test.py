"""What reaches a transport, and when."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
import uvloop
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from pagemill.config import ConnectionConfig
from pagemill.server.transport.connections import Connections
from pagemill.server.transport.http_protocol import BoundedHttpProtocol

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Recorder(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        super().__init__({"socket": self._socket})
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        if data:
            self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


async def _small(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"small", media_type="text/plain")(scope, receive, send)


async def _reads(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await _small(scope, receive, send)


async def _empty(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(status_code=204)(scope, receive, send)


async def _parts(scope: Scope, receive: Receive, send: Send) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"first", b"second"):
            await asyncio.sleep(0.001)
            yield part

    await StreamingResponse(parts())(scope, receive, send)


async def _large(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(bytes(2**20))(scope, receive, send)


async def _in_parts(scope: Scope, receive: Receive, send: Send) -> None:
    """A body whose length is known before its parts are."""

    async def parts() -> AsyncIterator[bytes]:
        for part in (b"first", b"second"):
            await asyncio.sleep(0.001)
            yield part

    await StreamingResponse(parts(), headers={"content-length": "11"})(scope, receive, send)


async def _fails(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    raise ValueError


async def written(app: ASGIApp, request: bytes, responses: int = 1) -> list[bytes]:
    """The writes of a connection that sends `request`."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, proxy_headers=False)
    connections = Connections(10, 1024)
    state = ServerState()
    protocol = BoundedHttpProtocol(
        config, state, {}, limits=ConnectionConfig(), connections=connections
    )
    transport = Recorder()
    protocol.connection_made(transport)
    protocol.data_received(request)
    async with asyncio.timeout(60):
        while state.total_requests < responses or state.tasks:
            await asyncio.sleep(0.001)
    protocol.connection_lost(None)
    return transport.written


@pytest.mark.parametrize(
    ("app", "request_bytes", "writes"),
    [
        (_small, GET, 1),
        (_empty, GET, 1),
        (_small, GET.replace(b"GET", b"HEAD"), 1),
        (_small, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 1),
        (_large, GET, 2),
        (_parts, GET, 4),  # the head, two parts, the end
        (_in_parts, GET, 2),
        (_small, GET.replace(b"Host", b"Expect: 100-continue\r\nHost"), 1),
        (_reads, GET.replace(b"Host", b"Expect: 100-continue\r\nHost"), 2),
    ],
)
def test_writes_of_a_response(app: ASGIApp, request_bytes: bytes, writes: int) -> None:
    async def main() -> None:
        found = await written(app, request_bytes)
        assert len(found) == writes
        assert b"".join(found).count(b"HTTP/1.1 20") == 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_head_whose_body_fails_is_written_before_the_end() -> None:
    async def main() -> None:
        (head,) = await written(_fails, GET, 0)
        assert head.startswith(b"HTTP/1.1 200")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_pipelined_responses_are_in_order() -> None:
    async def main() -> None:
        requests = GET.replace(b"GET", b"HEAD") + GET + GET
        found = await written(_small, requests, 3)
        assert [part.endswith(b"small") for part in found] == [False, True, True]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
