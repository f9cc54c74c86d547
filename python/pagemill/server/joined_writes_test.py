"""What reaches a transport, and when."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvicorn
import uvloop
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from pagemill.config import ConnectionConfig
from pagemill.server.connections import Connections
from pagemill.server.http_protocol import BoundedHttpProtocol
from pagemill.server.joined_writes import JoinedWrites

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


def run(body: Callable[[Recorder, JoinedWrites], Awaitable[None]]) -> None:
    async def main() -> None:
        transport = Recorder()
        await body(transport, JoinedWrites(transport, asyncio.get_running_loop()))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_head_and_its_body_are_one_write() -> None:
    async def check(transport: Recorder, writes: JoinedWrites) -> None:
        for _ in range(2):
            writes.write(b"head ")
            assert not transport.written
            writes.write(b"body")
            writes.response_ended()
            assert transport.written == [b"head body"]
            transport.written.clear()
        await asyncio.sleep(0)
        assert not transport.written

    run(check)


def test_a_head_waits_for_one_turn_of_the_loop() -> None:
    async def check(transport: Recorder, writes: JoinedWrites) -> None:
        writes.write(b"head")
        await asyncio.sleep(0)
        assert transport.written == [b"head"]
        for part in (b"1", b"2"):
            writes.write(part)
        assert transport.written == [b"head", b"1", b"2"]

    run(check)


def test_what_is_large_is_not_copied() -> None:
    async def check(transport: Recorder, writes: JoinedWrites) -> None:
        large = bytes(2**20)
        writes.write(b"head")
        writes.write(large)
        assert transport.written == [b"head", large]

    run(check)


def test_nothing_is_lost_at_the_end_and_nothing_is_written_after_it() -> None:
    async def check(transport: Recorder, writes: JoinedWrites) -> None:
        writes.write(b"head without a body")
        writes.response_ended()
        writes.write(b"the next one's")
        writes.close()
        assert transport.written == [b"head without a body", b"the next one's"]
        assert writes.is_closing()

    async def gone(transport: Recorder, writes: JoinedWrites) -> None:
        writes.write(b"head")
        transport.close()
        await asyncio.sleep(0)
        assert not transport.written

    run(check)
    run(gone)


async def _small(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"small", media_type="text/plain")(scope, receive, send)


async def _empty(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(status_code=204)(scope, receive, send)


async def _parts(scope: Scope, receive: Receive, send: Send) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"first", b"second"):
            await asyncio.sleep(0.001)
            yield part

    await StreamingResponse(parts())(scope, receive, send)


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
    async with asyncio.timeout(20):
        while state.total_requests < responses:
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
        (_parts, GET, 4),  # the head, two parts, the end
    ],
)
def test_writes_of_a_response(app: ASGIApp, request_bytes: bytes, writes: int) -> None:
    async def main() -> None:
        found = await written(app, request_bytes)
        assert len(found) == writes
        assert found[0].startswith(b"HTTP/1.1 20")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_pipelined_responses_are_in_order() -> None:
    async def main() -> None:
        requests = GET.replace(b"GET", b"HEAD") + GET + GET
        found = await written(_small, requests, 3)
        assert [part.endswith(b"small") for part in found] == [False, True, True]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
