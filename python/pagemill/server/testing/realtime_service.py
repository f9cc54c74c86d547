"""A server that listens, and clients of its `/v1/realtime`, of the `websockets` package."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import uvloop
from websockets.asyncio.client import ClientConnection, connect

from pagemill.config import ConnectionConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.media import Media
from pagemill.server.speech.speech import Speech
from pagemill.server.testing.fake_renderer import WORDED, FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.server.transport.http_server import HttpServer, listen


def message(text: str, role: str = "user") -> dict[str, Any]:
    """An item of text."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


class Client:
    """A connected client."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: str, **fields: Any) -> None:
        """Sends an event."""
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def next(self, kind: str = "") -> Any:
        """The next event, which is of type `kind` unless that is ""."""
        event = json.loads(await self.connection.recv())
        assert event["event_id"] and (not kind or event["type"] == kind), event
        return event

    async def until(self, kind: str) -> list[Any]:
        """All events up to the next one of type `kind`."""
        events = [await self.next()]
        while events[-1]["type"] != kind:
            events.append(await self.next())
        return events

    async def say(self, item: dict[str, Any], **fields: Any) -> Any:
        """Creates an item; returns the event that says that it was added."""
        await self.send("conversation.item.create", item=item, **fields)
        added = await self.next("conversation.item.added")
        await self.next("conversation.item.done")
        return added

    async def error(self, kind: str, **fields: Any) -> Any:
        """Sends an event that is refused; returns the error."""
        await self.send(kind, event_id="mine", **fields)
        error = (await self.next("error"))["error"]
        assert error["event_id"] == "mine" and error["message"]
        return error


class Service:
    """A fake server that listens."""

    def __init__(self, server: FakeServer, port: int) -> None:
        self.server = server
        self.url = f"ws://127.0.0.1:{port}/v1/realtime"

    @contextlib.asynccontextmanager
    async def client(
        self, query: str = "?model=fake", **headers: str
    ) -> AsyncGenerator[Client, None]:
        """A connected client, which has seen `session.created`."""
        async with connect(self.url + query, additional_headers=headers, proxy=None) as connection:
            client = Client(connection)
            await client.next("session.created")
            yield client


def run(
    body: Callable[[Service], Awaitable[None]],
    options: FakeOptions | None = None,
    *,
    keys: Sequence[ApiKey] = (),
    ring: KeyRing | None = None,
    idle_timeout: float = 300.0,
    max_model_len: int = 2048,
    request_timeout: float = 0.0,
    speech: Speech | None = None,
    media: Media | None = None,
) -> None:
    """Runs `body` with a server, whose other arguments are those of `fake_server`; at the end, no
    request runs in its engine."""

    async def main() -> None:
        renderer = FakeRenderer(WORDED)
        async with fake_server(
            options,
            renderer=renderer,
            keys=keys,
            ring=ring,
            max_model_len=max_model_len,
            realtime_idle_timeout=idle_timeout,
            request_timeout=request_timeout,
            speech=speech,
            media=media,
        ) as server:
            listener = listen("127.0.0.1", 0)
            http = HttpServer(server.app, ConnectionConfig(send_timeout=1.0))
            serving = asyncio.create_task(http.serve([listener]))
            try:
                async with asyncio.timeout(120):
                    await body(Service(server, listener.getsockname()[1]))
                    while server.async_engine.num_live:
                        await asyncio.sleep(0.01)
            finally:
                http.should_exit = True
                async with asyncio.timeout(60):
                    await serving

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
