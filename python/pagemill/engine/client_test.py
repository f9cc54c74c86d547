"""Both engine clients under the conformance suite, and what only the socket can do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagemill import _native
from pagemill.engine.client import EngineClient
from pagemill.engine.engine_group import EngineGroup
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.local_client import LocalClient
from pagemill.engine.messages import MAX_FRAME_BYTES, ModelFacts
from pagemill.engine.output_functions import OutputFunctions
from pagemill.engine.output_plugins import NamedPlugin, OutputPlugins
from pagemill.engine.outputs import EngineError
from pagemill.engine.remote.passed_connection import connect_passed
from pagemill.engine.socket_client import SocketClient
from pagemill.engine.testing.client_conformance import *  # noqa: F403
from pagemill.engine.testing.client_listener import (
    Connect,
    Listener,
    expected,
    request,
    run_loop,
)
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_outputs import FAKE_CODEC
from pagemill.engine.testing.input_conformance import *  # noqa: F403
from pagemill.engine.testing.joined_engine import joined

MODEL = ModelFacts(names=("fake",), path="", max_model_len=256, vocab_size=256)


@contextlib.asynccontextmanager
async def local(engine: FakeEngine) -> AsyncGenerator[Callable[[], EngineClient], None]:
    yield lambda: LocalClient(fake_bindings(engine), MODEL)


@contextlib.asynccontextmanager
async def served(engine: FakeEngine) -> AsyncGenerator[str, None]:
    """The path of a socket where `engine` is served."""
    with tempfile.TemporaryDirectory() as folder:
        server = EngineServer(fake_bindings(engine), MODEL, FAKE_CODEC.schema)
        await server.listen(f"{folder}/engine")
        try:
            yield f"{folder}/engine"
        finally:
            await server.close()


@contextlib.asynccontextmanager
async def across(engine: FakeEngine) -> AsyncGenerator[Callable[[], EngineClient], None]:
    async with served(engine) as path:
        yield lambda: SocketClient(path, FAKE_CODEC)


@contextlib.asynccontextmanager
async def remote(engine: FakeEngine) -> AsyncGenerator[Callable[[], EngineClient], None]:
    """As an engine on another machine."""
    server = EngineServer(fake_bindings(engine), MODEL, FAKE_CODEC.schema)
    async with joined(server) as path:
        yield lambda: SocketClient(path, FAKE_CODEC, connect_passed)
    await server.close()


@contextlib.asynccontextmanager
async def grouped(engine: FakeEngine) -> AsyncGenerator[Callable[[], EngineClient], None]:
    async with served(engine) as path:
        router = _native.Router(policy="prefix_aware", num_engines=1)
        yield lambda: EngineGroup([SocketClient(path, FAKE_CODEC)], router)


@pytest.fixture(params=[local, across, remote, grouped], ids=["local", "socket", "tcp", "group"])
def connect(request: pytest.FixtureRequest) -> Connect:
    return request.param


def test_requests_fail_when_the_engine_goes_and_a_new_engine_is_found() -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/engine"
            first = EngineServer(fake_bindings(engine), MODEL, FAKE_CODEC.schema)
            await first.listen(path)
            client, received = SocketClient(path, FAKE_CODEC), Listener()
            await client.start(received.on_outputs, received.on_lost)
            await client.submit([request(1, 1, max_tokens=10**6)])
            await received.until(lambda: 1 in received.tokens)
            await first.close()
            await received.until(lambda: received.lost is not None)
            assert received.lost is not None and received.lost.code == "UNAVAILABLE"
            with pytest.raises(EngineError, match="started again"):
                await client.submit([request(2, 1)])
            Path(path).unlink(missing_ok=True)
            second = EngineServer(fake_bindings(engine), MODEL, FAKE_CODEC.schema)
            await second.listen(path)
            async with asyncio.timeout(60):
                while not client.connected:
                    await asyncio.sleep(0.01)
            await client.submit([request(3, 1)])
            await received.until(lambda: 3 in received.ends)
            assert received.tokens[3] == expected(1, 8)
            await client.close()
            await second.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()


def test_an_engine_of_another_version_is_refused() -> None:
    async def main() -> None:
        async with served(engine) as path:
            client = SocketClient(path, replace(FAKE_CODEC, schema="other"))
            with pytest.raises(EngineError, match="another version of Pagemill"):
                await client.start(lambda _: None, lambda _: None)
            await client.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()


def test_garbage_ends_its_connection_only() -> None:
    async def main() -> None:
        async with served(engine) as path:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            client, received = SocketClient(path, FAKE_CODEC), Listener()
            await client.start(received.on_outputs, received.on_lost)
            garbage = [
                (MAX_FRAME_BYTES + 1).to_bytes(4, "little"),
                b"\x05\0\0\0hello",
                b"\x01\0\0\0\xc0",
                b"\x03\0\0\0\x91\xa1x",
                b"\x0a\0\0\0\x94\xa4Call\1\xa1\xff\x80",  # a name that is no UTF-8
            ]
            for data in garbage:
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(data)
                with contextlib.suppress(ConnectionResetError):
                    async with asyncio.timeout(60):
                        await reader.read()  # to the end
                writer.close()
            await client.submit([request(1, 1)])
            await received.until(lambda: 1 in received.ends)
            await client.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()


def test_a_client_that_does_not_read_loses_nothing_and_delays_no_other() -> None:
    async def main() -> None:
        async with served(engine) as path:
            slow, received = SocketClient(path, FAKE_CODEC), Listener()
            await slow.start(received.on_outputs, received.on_lost)
            quick, quickly = SocketClient(path, FAKE_CODEC), Listener()
            await quick.start(quickly.on_outputs, quickly.on_lost)
            connection = slow._connection  # pyright: ignore[reportPrivateUsage]
            assert connection is not None
            transport = connection._transport  # pyright: ignore[reportPrivateUsage]
            assert transport is not None
            await slow.submit([request(i, i, max_tokens=300) for i in range(64)])
            transport.pause_reading()
            await quick.submit([request(1, 9, max_tokens=300)])
            await quickly.until(lambda: 1 in quickly.ends)
            transport.resume_reading()
            await received.until(lambda: len(received.ends) == 64)
            assert received.tokens == {i: expected(i, 300) for i in range(64)}
            await slow.close()
            await quick.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()


def test_plugins_never_hold_up_the_loop(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if what they make is kept no longer: other requests may have had their own made."""
    threads: list[threading.Thread] = []

    def functions(self: OutputPlugins, *_: Any) -> OutputFunctions:
        del self
        threads.append(threading.current_thread())
        return OutputFunctions()

    async def main() -> None:
        async with connect(engine) as new_client:
            client, received = new_client(), Listener()
            await client.start(received.on_outputs, received.on_lost)
            await client.submit([request(1, 1, plugins=(NamedPlugin("any", "1"),))])
            await received.until(lambda: 1 in received.ends)
            await client.close()

    monkeypatch.setattr(OutputPlugins, "functions", functions)
    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()
    (thread,) = threads
    assert thread is not threading.main_thread()


def test_what_an_engine_does_not_take_is_bounded() -> None:
    class Full:
        """A connection over which nothing goes."""

        def get_write_buffer_size(self) -> int:
            return MAX_FRAME_BYTES + 1

    async def main() -> None:
        async with served(engine) as path:
            client, received = SocketClient(path, FAKE_CODEC), Listener()
            await client.start(received.on_outputs, received.on_lost)
            connection: Any = client._connection  # pyright: ignore[reportPrivateUsage]
            transport, connection._transport = connection._transport, Full()
            with pytest.raises(EngineError, match="Too many requests wait") as refused:
                await client.submit([request(1, 1)])
            assert refused.value.code == "RESOURCE_EXHAUSTED"
            connection._transport = transport
            await client.submit([request(1, 1)])
            await received.until(lambda: 1 in received.ends)
            await client.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()
