"""Servers over fake engines behind a router, in one process, on real sockets; for tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import httpx
from starlette.types import ASGIApp

from pagemill.config import ConnectionConfig, RouteConfig, build
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.router.fleet import Fleet
from pagemill.router.serve import RunningRouter
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.rendering import Rendering
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.server.testing.fake_speech import fake_speech
from pagemill.server.transport.http_server import HttpServer
from pagemill.server.transport.tls import Tls

MAX_MODEL_LEN = 4096


@dataclass(frozen=True, slots=True)
class FakeFleet:
    """A running router, a client of it, and the servers behind it."""

    client: httpx.AsyncClient
    router: Fleet
    lifecycle: Lifecycle
    servers: list[FakeServer]


@contextlib.asynccontextmanager
async def listening(
    app: ASGIApp, listener: socket.socket | None = None, tls: Tls | None = None
) -> AsyncGenerator[str]:
    """Serves `app` on a socket; its URL. Breaks all connections at the end."""
    listener = listener or socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    server = HttpServer(app, ConnectionConfig(), tls)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        serving.cancel()  # uvicorn's own end takes tenths of a second
        await asyncio.gather(serving, return_exceptions=True)
        for each in server.servers:
            each.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()


@contextlib.asynccontextmanager
async def fake_fleet(
    num_servers: int = 2,
    options: FakeOptions | None = None,
    *,
    policy: str = "round_robin",
    server_keys: tuple[ApiKey, ...] = (),
    keys: tuple[ApiKey, ...] = (),
    transcribes: bool = False,
    **settings: object,
) -> AsyncGenerator[FakeFleet]:
    """Runs `num_servers` servers and a router, which probes often; all are available.
    `transcribes`: their model does, and nothing else."""
    async with contextlib.AsyncExitStack() as stack:
        servers: list[FakeServer] = []
        urls: list[str] = []
        for _ in range(num_servers):
            speech = fake_speech() if transcribes else None
            made = fake_server(
                options, keys=server_keys, max_model_len=MAX_MODEL_LEN, speech=speech
            )
            servers.append(await stack.enter_async_context(made))
            urls.append(await stack.enter_async_context(listening(servers[-1].app)))
        running = running_router(urls, policy=policy, keys=keys, **settings)
        client, fleet, lifecycle = await stack.enter_async_context(running)
        await until(lambda: len(fleet.available) == num_servers)
        yield FakeFleet(client, fleet, lifecycle, servers)


@contextlib.asynccontextmanager
async def running_router(
    urls: list[str], *, keys: tuple[ApiKey, ...] = (), **settings: object
) -> AsyncGenerator[tuple[httpx.AsyncClient, Fleet, Lifecycle]]:
    """A router to `urls`; `settings` are options by name."""
    defaults = {"model": "fake", "probe_interval": 0.02, "server": tuple(urls)}
    config = build(RouteConfig, defaults | settings)
    lifecycle = Lifecycle()
    rendering = Rendering(FakeRenderer(), MAX_MODEL_LEN)
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        RunningRouter(config, lifecycle, KeyRing(keys), rendering, listener) as running,
        httpx.AsyncClient(base_url=base_url, timeout=120) as client,
    ):
        yield client, running.fleet, lifecycle


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Waits for `condition`, which fails the test if it never holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.005)
