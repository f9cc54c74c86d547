"""What a client without a key can do to the server's memory, time and connections: not much."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import resource
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from pagemill.config import ConnectionConfig
from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.testing.fake_server import fake_server
from pagemill.server.transport import http_protocol
from pagemill.server.transport.connections import (
    RESERVED_DESCRIPTORS,
    Connections,
    Room,
    address_of,
    raise_descriptor_limit,
)
from pagemill.server.transport.http_server import HttpServer, listen

GET = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
KEYED = b"Host: x\r\nAuthorization: Bearer key\r\nContent-Type: application/json\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + KEYED
QUICK = ConnectionConfig(header_timeout=0.5, body_timeout=0.5)


@dataclass(frozen=True)
class Edge:
    """A server over the fake engine that listens on `port`."""

    port: int
    engine: FakeEngine
    server: HttpServer

    async def until_no_connection(self) -> None:
        async with asyncio.timeout(60):
            while self.server.server_state.connections:
                await asyncio.sleep(0.001)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, *parts: bytes, pause_s: float = 0.0) -> bytes:
        """Everything that comes back until the server closes."""
        reader, writer = await self.connect()
        reading = asyncio.create_task(read_all(reader))
        with contextlib.suppress(ConnectionError):
            for part in parts:
                if reading.done():
                    break
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s)
        with contextlib.closing(writer):
            return await reading


async def read_all(reader: asyncio.StreamReader) -> bytes:
    received = b""
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                received += part
    return received


@contextlib.asynccontextmanager
async def running(
    config: ConnectionConfig, keys: tuple[str, ...], options: FakeOptions | None
) -> AsyncGenerator[Edge, None]:
    listener = listen("127.0.0.1", 0)
    async with fake_server(options, api_keys=keys) as fake:
        server = HttpServer(fake.app, config)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield Edge(listener.getsockname()[1], fake.engine, server)
        finally:
            server.should_exit = True
            await serving


def edge_test(
    body: Callable[[Edge], Awaitable[None]],
    config: ConnectionConfig | None = None,
    keys: tuple[str, ...] = (),
    options: FakeOptions | None = None,
) -> None:
    async def main() -> None:
        async with running(config or ConnectionConfig(), keys, options) as edge:
            await body(edge)
            # Whatever happened: the next request is answered.
            assert (await edge.send(LAST)).startswith((b"HTTP/1.1 200", b"HTTP/1.1 401"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def check_refusal(reply: bytes, status: int) -> str:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), reply[:200]
    assert b"connection: close" in head and b"x-request-id: " in head
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == status
    return error["message"]


def resident_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


ENDLESS = {
    "many header lines": (b"GET / HTTP/1.1\r\n", b"X-Header-Line: some value\r\n" * 2000),
    "one header": (b"GET / HTTP/1.1\r\nX: ", b"y" * 65536),
    "one header's name": (b"GET / HTTP/1.1\r\n", b"y" * 65536),
    "the request line": (b"GET /", b"y" * 65536),
    "empty lines before it": (b"\r\n", b"\r\n" * 32768),
    "trailers": (
        b"POST /v1/models HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        b"X-Trailer-Line: some value\r\n" * 2000,
    ),
    "a chunk's extension": (
        b"POST /v1/models HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"x" * 65536,
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_heads_are_cut_off(name: str) -> None:
    start, repeated = ENDLESS[name]
    total = 600_000_000

    async def body(edge: Edge) -> None:
        before = resident_bytes()
        reader, writer = await edge.connect()
        sent = 0
        with contextlib.suppress(ConnectionError):
            writer.write(start)
            while sent < total:
                writer.write(repeated)
                await writer.drain()
                sent += len(repeated)
        writer.close()
        grown = resident_bytes() - before
        print(f"{name}: {sent:,} bytes sent before the end, {grown:,} bytes grown")
        # The rest lies in socket buffers of this machine, which take some megabytes.
        assert sent < 32_000_000
        assert grown < 16_000_000
        del reader

    edge_test(body)


def test_too_large_heads_are_431() -> None:
    async def body(edge: Edge) -> None:
        line = b"GET /version HTTP/1.1\r\n"
        for head in (
            line + b"X: " + b"y" * 60_000,  # not even complete
            line + b"X: " + b"y" * 33_000 + b"\r\n\r\n",
            b"GET /" + b"y" * 33_000 + b" HTTP/1.1\r\n\r\n",
            line + (b"X: " + b"y" * 200 + b"\r\n") * 200 + b"\r\n",
        ):
            assert "--max-header-bytes" in check_refusal(await edge.send(head), 431)
        assert "256 headers" in check_refusal(await edge.send(line + b"a:b\r\n" * 258), 431)
        fits = line + b"Host: x\r\nX: " + b"y" * 30_000 + b"\r\n\r\n"
        assert (await edge.send(fits, LAST)).startswith(b"HTTP/1.1 200")
        # The bound is that of one request, not of a connection.
        assert (await edge.send(*[fits] * 5, LAST)).count(b"HTTP/1.1 200") == 6

    edge_test(body)


def test_slow_requests_are_408() -> None:
    async def body(edge: Edge) -> None:
        head = [bytes([byte]) for byte in GET]
        silent, dribbled, empty, stalled, chunked = await asyncio.gather(
            edge.send(b""),
            edge.send(*head, pause_s=0.05),
            edge.send(*[b"\r\n"] * 20, pause_s=0.05),
            edge.send(POST + b"Content-Length: 100\r\n\r\n{", b'"', pause_s=0.05),
            edge.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
        )
        assert silent == empty == b""  # no request came: closed without an answer
        assert "--header-timeout" in check_refusal(dribbled, 408)
        for reply in (stalled, chunked):
            assert "--body-timeout" in check_refusal(reply, 408)

    edge_test(body, QUICK)


def test_what_takes_longer_than_the_limits_is_not_slow_if_it_goes_on() -> None:
    limit_s = 2.0  # far more than the pauses, for a machine that may be busy

    async def body(edge: Edge) -> None:
        async def sends_slowly() -> None:
            content = b'{"prompt": "a", "max_tokens": 1}'
            length = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(content)
            parts = [content[i : i + 1] for i in range(len(content))]
            began = time.monotonic()
            reply = await edge.send(POST + length, *parts, pause_s=0.08)
            assert reply.startswith(b"HTTP/1.1 200") and time.monotonic() - began > limit_s

        async def reads_a_long_stream() -> None:
            content = b'{"prompt": "a", "max_tokens": 200, "stream": true, "ignore_eos": true}'
            length = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(content)
            began = time.monotonic()
            assert b"[DONE]" in await edge.send(POST + length + content)
            assert time.monotonic() - began > limit_s

        await asyncio.gather(sends_slowly(), reads_a_long_stream())

    config = ConnectionConfig(header_timeout=limit_s, body_timeout=limit_s)
    edge_test(body, config, options=FakeOptions(step_s=0.015))


def test_the_key_is_checked_before_the_body_is_read() -> None:
    async def body(edge: Edge) -> None:
        post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n"
        reader, writer = await edge.connect()
        writer.write(post + b"\r\n")
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 401")
        writer.close()
        reader, writer = await edge.connect()
        writer.write(post + b"Expect: 100-continue\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 401")
        writer.close()
        # A body sent nevertheless is dropped, the connection stays usable, and memory flat.
        before = resident_bytes()
        reply = await edge.send(post + b"\r\n", *[b"x" * 1_000_000] * 30, LAST)
        assert reply.count(b"HTTP/1.1 401") == 2
        assert resident_bytes() - before < 8_000_000

    edge_test(body, keys=("key",))


def test_a_client_that_a_full_queue_refuses_keeps_its_connection() -> None:
    async def body(edge: Edge) -> None:
        post = b"POST /v1/completions HTTP/1.1\r\n" + KEYED + b"Content-Length: 4\r\n\r\n"
        reply = await edge.send(post + b"{  }", post, b"{  }", post + b"{", b"  }", LAST)
        assert reply.count(b"HTTP/1.1 429") == 3
        assert reply.count(b"retry-after: 1") == 3
        assert reply.count(b"HTTP/1.1 200") == 1
        assert reply.count(b"connection: close") == 1

    edge_test(body, options=FakeOptions(max_running=0, max_waiting=0, retry_after_s=1))


def test_a_refused_body_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "_DROP_BODY_S", 0.5)

    async def body(edge: Edge) -> None:
        post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        began = time.monotonic()
        reply = await edge.send(post, *[b"1\r\nx\r\n"] * 1000, pause_s=0.05)
        assert reply.startswith(b"HTTP/1.1 401")
        assert time.monotonic() - began < 50  # that of all pauses

    edge_test(body, keys=("key",))


def test_pipelined_requests() -> None:
    async def body(edge: Edge) -> None:
        assert (await edge.send(GET * 10 + LAST)).count(b"HTTP/1.1 200") == 11
        content = b'{"prompt": "a", "max_tokens": 200, "stream": true, "ignore_eos": true}'
        post = POST + b"Content-Length: %d\r\n\r\n" % len(content) + content
        reply = await edge.send(post + GET * 2 + LAST)
        assert reply.count(b"HTTP/1.1 200") == 4
        assert reply.index(b"[DONE]") < reply.index(b'{"version"')
        before = resident_bytes()
        edge.engine.most_tokens = 3
        reply = await edge.send(post, *[GET * 10_000] * 50)
        assert b"[DONE]" not in reply  # the connection was closed at once
        assert resident_bytes() - before < 16_000_000

    edge_test(body)


def test_what_is_not_http() -> None:
    async def body(edge: Edge) -> None:
        for nonsense in (
            b"NONSENSE\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\nA b: c\r\n\r\n",
            b"POST /v1/models HTTP/1.1\r\nContent-Length: -5\r\n\r\n{}",
            b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ):
            assert "HTTP/1.1" in check_refusal(await edge.send(nonsense), 400)
        for protocol in (b"h2c", b"websocket"):
            upgrade = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "
            reply = await edge.send(upgrade + protocol + b"\r\n\r\n", LAST)
            assert reply.count(b"HTTP/1.1 200") == 2  # a plain answer, and the connection lives

    edge_test(body)


def test_connections_give_way(caplog: pytest.LogCaptureFixture) -> None:
    async def body(edge: Edge) -> None:
        content = b'{"prompt": "a", "max_tokens": 200, "stream": true, "ignore_eos": true}'
        post = b"POST /v1/completions HTTP/1.1\r\nConnection: close\r\n" + KEYED
        post += b"Content-Length: %d\r\n\r\n" % len(content) + content
        edge.engine.most_tokens = 3
        busy_reader, busy = await edge.connect()
        busy.write(post)
        await busy_reader.readline()
        idle = [await edge.connect() for _ in range(9)]
        assert (await edge.send(LAST)).startswith(b"HTTP/1.1 200")
        assert await asyncio.wait_for(idle[0][0].read(), 60) == b""  # the oldest went
        edge.engine.most_tokens = None
        assert b"[DONE]" in await read_all(busy_reader)
        for _, writer in [*idle, (busy_reader, busy)]:
            writer.close()
        await edge.until_no_connection()
        edge.engine.most_tokens = 3
        streams = [await edge.connect() for _ in range(10)]
        for reader, writer in streams:
            writer.write(post)
            await reader.readline()
        assert "connection" in check_refusal(await edge.send(GET), 503)
        edge.engine.most_tokens = None
        for reader, writer in streams:
            assert b"[DONE]" in await read_all(reader)
            writer.close()
        await edge.until_no_connection()

    with caplog.at_level(logging.WARNING):
        limits = ConnectionConfig(
            max_connections=10, max_connections_per_address=20, header_timeout=30
        )
        edge_test(body, limits)
    assert [r.message for r in caplog.records if "--max-connections" in r.message]


class FakeConnection:
    """Remembers whether it was closed."""

    closed = False

    def close_idle(self) -> None:
        self.closed = True


def test_out_of_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    connections = Connections(max_connections=1000, max_descriptors=RESERVED_DESCRIPTORS + 30)
    created = [FakeConnection() for _ in range(40)]
    # Numbers 0 to 9 are those of other parts of the process.
    for descriptor, connection in enumerate(created[:21], 10):
        assert connections.opened(connection, descriptor) is Room.TAKEN
    assert not caplog.records and not any(connection.closed for connection in created)
    connections.became_busy(created[0])
    assert connections.opened(created[21], 31) is Room.TAKEN
    assert "File descriptors run out" in caplog.records[0].message
    # The closed ones' numbers are given again: it is the count that must not rise any more.
    for descriptor, connection in enumerate(created[22:], 11):
        assert connections.opened(connection, descriptor) is Room.TAKEN
    assert [c.closed for c in created] == [False, *[True] * 19, *[False] * 20]
    assert len(connections) == 21
    assert len(caplog.records) == 2  # not one for each
    for connection in created:
        connections.became_busy(connection)
    assert connections.opened(FakeConnection(), 11) is Room.FULL
    connections.closed(created[0])
    assert connections.opened(FakeConnection(), 11) is Room.TAKEN


def test_the_limit_rises_again() -> None:
    now, used = [0.0], [100]
    connections = Connections(
        max_connections=1000,
        max_descriptors=RESERVED_DESCRIPTORS + 100,
        used_descriptors=lambda: used[0],
        clock=lambda: now[0],
    )

    def open_busy(descriptor: int) -> Room:
        connection = FakeConnection()
        room = connections.opened(connection, descriptor)
        connections.became_busy(connection)
        return room

    assert [open_busy(20) for _ in range(5)] == [Room.TAKEN] * 5
    assert open_busy(101) is Room.FULL, "five are the most"
    used[0] = 93
    now[0] = 9.9
    assert open_busy(20) is Room.FULL, "it has not been looked yet"
    now[0] = 10.0
    assert [open_busy(20) for _ in range(8)] == [Room.TAKEN] * 7 + [Room.FULL]
    used[0] = 200  # of other parts of the process
    now[0] = 20.0
    assert open_busy(20) is Room.FULL
    used[0] = 10
    now[0] = 30.0
    assert [open_busy(20) for _ in range(88)] == [Room.TAKEN] * 88


def test_connections_of_an_address_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    connections = Connections(100, 10_000, max_of_address=2)
    idle, busy, third, other = (FakeConnection() for _ in range(4))
    assert connections.opened(busy, 1, "10.0.0.1") is Room.TAKEN
    connections.became_busy(busy)
    assert connections.opened(other, 1, "10.0.0.2") is Room.TAKEN
    assert connections.opened(idle, 1, "10.0.0.1") is Room.TAKEN
    assert connections.opened(third, 1, "10.0.0.1") is Room.TAKEN
    assert [each.closed for each in (busy, other, idle, third)] == [False, False, True, False]
    connections.became_busy(third)
    for _ in range(3):
        assert connections.opened(FakeConnection(), 1, "10.0.0.1") is Room.ADDRESS_FULL
    assert len(caplog.records) == 1 and "10.0.0.1 has 2 connections" in caplog.records[0].message
    connections.became_idle(busy)
    assert connections.opened(FakeConnection(), 1, "10.0.0.1") is Room.TAKEN and busy.closed
    connections.closed(third)
    assert connections.opened(FakeConnection(), 1, "10.0.0.1") is Room.TAKEN
    assert len(connections) == 3
    local = [FakeConnection() for _ in range(10)]
    assert [connections.opened(each, 1) for each in local] == [Room.TAKEN] * 10, "a Unix socket"


def test_no_single_address_has_all_connections() -> None:
    connections = Connections(16, 10_000)
    opened = [FakeConnection() for _ in range(16)]
    rooms = [connections.opened(each, 1, "10.0.0.1") for each in opened]
    assert rooms == [Room.TAKEN] * 16 and sum(each.closed for each in opened) == 2
    assert [connections.opened(FakeConnection(), 1, "10.0.0.2") for _ in range(2)] == [
        Room.TAKEN
    ] * 2
    assert sum(each.closed for each in opened) == 2
    assert Connections(1, 10_000).opened(FakeConnection(), 1, "10.0.0.1") is Room.TAKEN


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("10.0.0.1", 1234), "10.0.0.1"),
        (("::ffff:10.0.0.1", 1234, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 3), "fe80::/64"),
        ("", ""),
        (b"", ""),
        (None, ""),
    ],
)
def test_addresses(peer: object, address: str) -> None:
    assert address_of(peer) == address


def test_an_address_with_too_many_connections_is_refused() -> None:
    async def body(edge: Edge) -> None:
        _, writer = await edge.connect()
        writer.write(POST + b"Content-Length: 100\r\n\r\n")  # and nothing of the body
        await writer.drain()
        async with asyncio.timeout(60):
            while not edge.server.server_state.tasks:
                await asyncio.sleep(0.001)
        message = check_refusal(await edge.send(LAST), 429)
        assert "--max-connections-per-address" in message
        writer.close()
        await edge.until_no_connection()

    edge_test(body, ConnectionConfig(max_connections_per_address=1), keys=("key",))


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, 1 << 20, 4736),
        (1024, 4096, 4096),
        (8192, 8192, None),
        (200, 200, None),
        (-1, -1, None),
    ],
)
def test_the_soft_limit_of_descriptors_is_raised(
    soft: int,
    hard: int,
    wanted: int | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changes.append(limits))
    limit = raise_descriptor_limit(4096)
    assert changes == ([] if wanted is None else [(wanted, hard)])
    assert limit == (wanted or (soft if soft > 0 else 2**31 - 1))
    assert ("--max-connections" in caplog.text) == (limit < 4096 + RESERVED_DESCRIPTORS)


def test_warnings_are_rate_limited(caplog: pytest.LogCaptureFixture) -> None:
    async def body(edge: Edge) -> None:
        for _ in range(50):
            await edge.send(b"NONSENSE\r\n\r\n")

    with caplog.at_level(logging.WARNING):
        edge_test(body)
    assert len([r for r in caplog.records if "HTTP status 400" in r.message]) == 1


def test_an_address_that_cannot_be_had_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=rf"127.0.0.1:{port}: .*; choose another --port \(0 = any"
        ):
            listen("127.0.0.1", port)
        with pytest.raises(OSError, match="; choose another --admin-address$"):
            listen("127.0.0.1", port, "--admin-address")

    def unknown(*args: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="cannot listen on nowhere:1: Name or service not known"):
        listen("nowhere", 1)
