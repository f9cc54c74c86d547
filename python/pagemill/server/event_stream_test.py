"""Events over a connection that takes them, that is full, and that fails."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message

from pagemill.server import event_stream
from pagemill.server.event_stream import BODY_WRITER, EventStream


class Source:
    """Events that the test pushes."""

    def __init__(self) -> None:
        self.ended = False
        self.last = False
        self.closed = 0
        self.waiting: list[bytes] = []
        self.takes: list[bool] = []
        self.on_news: Callable[[], None] = lambda: None

    def listen(self, on_news: Callable[[], None]) -> None:
        self.on_news = on_news

    def take(self, behind: bool) -> bytes:
        self.takes.append(behind)
        data = b"".join(self.waiting)
        self.waiting.clear()
        self.ended = self.last
        return data

    def close(self) -> None:
        self.closed += 1

    def push(self, data: bytes, last: bool = False) -> None:
        self.waiting.append(data)
        self.last = last
        self.on_news()


class Connection:
    """A client's end; `open` cleared is a connection that is full."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.ended = False
        self.open = asyncio.Event()
        self.open.set()
        self.gone = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, message: Message) -> None:
        await self.open.wait()
        if message["type"] == "http.response.body":
            if self.error is not None:
                raise self.error
            self.bodies.append(message["body"])
            self.ended = not message["more_body"]

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    def write(self, data: bytes) -> bool:
        if self.open.is_set():
            self.bodies.append(b"direct " + data)
        return self.open.is_set()


async def started(source: Source, connection: Connection, direct: bool) -> asyncio.Task[None]:
    state = {BODY_WRITER: connection} if direct else {}
    response = EventStream(source, b":\n\n")
    scope = {"type": "http", "state": state}
    task = asyncio.ensure_future(response(scope, connection.receive, connection.send))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("direct", [False, True])
def test_events_are_sent_within_the_call(direct: bool) -> None:
    async def body() -> None:
        source, connection = Source(), Connection()
        task = await started(source, connection, direct)
        for text in (b"a", b"b"):
            source.push(text)
        assert connection.bodies == ([b"direct a", b"direct b"] if direct else [b"a", b"b"])
        source.push(b"c", last=True)
        assert connection.ended and connection.bodies[-1] == b"c"
        await asyncio.wait_for(task, 60)
        assert source.closed == 1

    asyncio.run(body())


@pytest.mark.parametrize("direct", [False, True])
def test_a_full_connection_holds_one_event_and_the_rest_merges(direct: bool) -> None:
    async def body() -> None:
        source, connection = Source(), Connection()
        task = await started(source, connection, direct)
        connection.open.clear()
        for text in (b"a", b"b", b"c"):
            source.push(text)
        await asyncio.sleep(0)
        assert connection.bodies == []
        assert source.waiting == [b"b", b"c"]
        connection.open.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert connection.bodies[0] == b"a"
        assert connection.bodies[1].endswith(b"bc")
        assert source.takes[-1] is True
        source.push(b"d", last=True)
        await asyncio.wait_for(task, 60)
        assert connection.ended and connection.bodies[-1] == b"d"

    asyncio.run(body())


def test_the_end_comes_while_the_connection_is_full() -> None:
    async def body() -> None:
        source, connection = Source(), Connection()
        task = await started(source, connection, direct=True)
        connection.open.clear()
        source.push(b"a")
        source.push(b"b", last=True)
        connection.open.set()
        await asyncio.wait_for(task, 60)
        assert connection.bodies == [b"a", b"b"]
        assert connection.ended

    asyncio.run(body())


@pytest.mark.parametrize("full", [False, True])
def test_a_client_that_goes_away_closes_the_source(full: bool) -> None:
    async def body() -> None:
        source, connection = Source(), Connection()
        task = await started(source, connection, direct=False)
        if full:
            connection.open.clear()
            source.push(b"a")
        connection.gone.set()
        await asyncio.wait_for(task, 60)
        assert source.closed == 1
        source.push(b"late")  # no one takes it
        assert source.waiting

    asyncio.run(body())


def test_a_send_that_fails_ends_the_response_and_not_its_caller() -> None:
    async def body() -> None:
        source, connection = Source(), Connection()
        task = await started(source, connection, direct=False)
        connection.error = OSError("broken")
        source.push(b"a")
        with pytest.raises(OSError, match="broken"):
            await asyncio.wait_for(task, 60)
        assert source.closed == 1

    asyncio.run(body())


@pytest.mark.parametrize("direct", [False, True])
def test_a_stream_that_waits_says_so(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_IDLE_S", 0.001)
    idle = b"direct :\n\n" if direct else b":\n\n"

    async def body() -> None:
        source, connection = Source(), Connection()
        task = await started(source, connection, direct)
        while connection.bodies.count(idle) < 2:
            await asyncio.sleep(0.001)
        connection.open.clear()  # what is not read is not added to
        source.push(b"a")
        await asyncio.sleep(0.01)
        before = len(connection.bodies)
        connection.open.set()
        source.push(b"b", last=True)
        await asyncio.wait_for(task, 60)
        assert connection.bodies[before:] == [b"a", b"b"] and connection.ended

    asyncio.run(body())
