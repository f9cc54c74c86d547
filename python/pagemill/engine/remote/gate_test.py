"""Tests of the gate, and of engines that join it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from pagemill.config import ConfigError
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.frames import frame
from pagemill.engine.meeting_place import MeetingPlace
from pagemill.engine.messages import (
    ChoiceRequest,
    EngineRequest,
    ModelFacts,
    Submit,
    message_encoder,
)
from pagemill.engine.remote import gate as gates
from pagemill.engine.remote.gate import BEGIN, Gate
from pagemill.engine.remote.handshake import HandshakeError, prove
from pagemill.engine.remote.join_messages import JOIN_PROTOCOL, RUN_BYTES, Answer, Verdict
from pagemill.engine.remote.joining import keep_joined
from pagemill.engine.remote.passed_connection import connect_passed
from pagemill.engine.socket_client import SocketClient
from pagemill.engine.testing.client_listener import Listener, expected, request
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_outputs import FAKE_CODEC
from pagemill.engine.testing.joined_engine import (
    ENGINE,
    MODEL,
    OPTIONS,
    VERSION,
    claim,
    reserved_place,
)
from pagemill.inputs.rendered_prompt import RenderedPrompt

FACTS = ModelFacts(names=("fake",), path="", max_model_len=256, vocab_size=256)
OTHER_RUN = b"o" * RUN_BYTES


@pytest.fixture(name="place")
def _place() -> Iterator[MeetingPlace]:
    with reserved_place() as place:
        yield place


@contextlib.asynccontextmanager
async def gate(place: MeetingPlace, **options: Any) -> AsyncGenerator[tuple[Gate, str], None]:
    """An open one, and the path of the socket for ENGINE."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/engine"
        made = Gate(place, {ENGINE: path}, VERSION, OPTIONS, **options)
        made.open()
        try:
            yield made, path
        finally:
            made.close()


@contextlib.asynccontextmanager
async def joining(
    engine: FakeEngine, place: MeetingPlace, **other: Any
) -> AsyncGenerator[None, None]:
    """An engine that has joined."""
    server = EngineServer(fake_bindings(engine), FACTS, FAKE_CODEC.schema)
    has_joined = asyncio.Event()
    task = asyncio.create_task(keep_joined(server, place, claim(**other), has_joined))
    try:
        await asyncio.wait_for(has_joined.wait(), 60)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.close()


def run(main: Callable[[FakeEngine], Coroutine[Any, Any, None]]) -> None:
    engine = FakeEngine()
    try:
        asyncio.run(asyncio.wait_for(main(engine), 120))
    finally:
        engine.shutdown()


async def answer_to(place: MeetingPlace, **other: Any) -> tuple[Answer, socket.socket]:
    """What the gate says to an engine, and the connection."""
    connection = socket.create_connection((place.host, place.port))
    connection.setblocking(False)
    said = await prove(connection, JOIN_PROTOCOL, place.secret, claim(**other).encode())
    return Answer.decode(said), connection


def test_each_client_has_a_connection_of_its_own(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (_, path), joining(engine, place):
            clients = [SocketClient(path, FAKE_CODEC, connect_passed) for _ in range(4)]
            heard = [Listener() for _ in clients]
            for client, listener in zip(clients, heard, strict=True):
                await client.start(listener.on_outputs, listener.on_lost)
                await client.submit([request(1, 1)])  # ids are those of a client
            for client, listener in zip(clients, heard, strict=True):
                await listener.until(lambda: 1 in listener.ends)  # noqa: B023
                assert listener.tokens[1] == expected(1, 8)
                await client.close()

    run(main)


def test_requests_are_lost_with_the_engine_which_may_come_back(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        returns = [0]

        def count() -> None:
            returns[0] += 1

        async with gate(place, on_return=count) as (_, path):
            client, heard = SocketClient(path, FAKE_CODEC, connect_passed), Listener()
            async with joining(engine, place):
                await client.start(heard.on_outputs, heard.on_lost)
                await client.submit([request(1, 1, max_tokens=10**6)])
                await heard.until(lambda: 1 in heard.tokens)
            await heard.until(lambda: heard.lost is not None)
            assert not client.connected and returns == [0]
            async with joining(engine, place, run=OTHER_RUN):
                while not client.connected:
                    await asyncio.sleep(0.01)
                await client.submit([request(2, 1)])
                await heard.until(lambda: 2 in heard.ends)
            assert returns == [1]
            await client.close()

    run(main)


def test_an_engine_waits_for_a_server_that_is_started_again(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        server = EngineServer(fake_bindings(engine), FACTS, FAKE_CODEC.schema)
        has_joined = asyncio.Event()
        task = asyncio.create_task(keep_joined(server, place, claim(), has_joined))
        for _ in range(2):
            async with gate(place) as (_, path):
                client, heard = SocketClient(path, FAKE_CODEC, connect_passed), Listener()
                await client.start(heard.on_outputs, heard.on_lost)
                await client.submit([request(1, 1)])
                await heard.until(lambda: 1 in heard.ends)  # noqa: B023
                await client.close()
        assert has_joined.is_set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.close()

    run(main)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"version": "1.2.4"}, "has version 1.2.4 of Pagemill and the server has 1.2.3"),
        ({"engine": 4}, "expects no engine 4 .*--data-parallel-start-rank"),
        ({"options": "00" * 32}, "was started with other options than the server"),
        ({"model": "00" * 32}, "has another model, or other files of it"),
    ],
)
def test_what_does_not_belong_is_told_why(
    place: MeetingPlace, other: dict[str, Any], words: str
) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (made, _):
            made.expect(MODEL)
            answer, connection = await answer_to(place, **other)
            connection.close()
            assert answer.verdict is Verdict.REFUSED
            server = EngineServer(fake_bindings(engine), FACTS, FAKE_CODEC.schema)
            with pytest.raises(ConfigError, match=words):
                await keep_joined(server, place, claim(**other), asyncio.Event())
            assert not has_waiting(made)

    run(main)


def has_waiting(made: Gate) -> bool:
    return bool(made._waiting)  # pyright: ignore[reportPrivateUsage]


def test_another_secret_is_no_secret(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        for secret in ("", "what one machine knows"):
            other = MeetingPlace(place.host, place.port, secret)
            async with gate(place):
                with pytest.raises(HandshakeError, match="does not have the same secret"):
                    await answer_to(other)

    run(main)


def test_engines_of_this_machine_say_what_the_model_is(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place, has_own=True) as (made, _):
            answer, connection = await answer_to(place)
            connection.close()
            assert answer.verdict is Verdict.LATER and "still being loaded" in answer.reason
            made.expect(MODEL)
            answer, connection = await answer_to(place)
            connection.close()
            assert answer.verdict is Verdict.JOINED

    run(main)


def test_an_engine_is_one_process(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (made, path):
            (_, old), (same, new) = await answer_to(place), await answer_to(place)
            assert same.verdict is Verdict.JOINED
            assert await asyncio.get_running_loop().sock_recv(old, 1) == b""
            answer, other = await answer_to(place, run=OTHER_RUN)
            assert answer.verdict is Verdict.LATER and "from 127.0.0.1" in answer.reason
            new.close()
            while has_waiting(made):
                await asyncio.sleep(0.01)
            answer, last = await answer_to(place, run=OTHER_RUN)
            assert answer.verdict is Verdict.JOINED
            last.send(b"before its turn")
            while has_waiting(made):
                await asyncio.sleep(0.01)
            for each in (old, other, last):
                each.close()

    run(main)


def test_clients_wait_for_an_engine_that_has_not_joined(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (made, path):
            clients = made._clients[ENGINE]  # pyright: ignore[reportPrivateUsage]

            async def until_waiting(count: int) -> None:
                while len(clients) != count:
                    await asyncio.sleep(0.01)

            gone = asyncio.create_task(connect_passed(asyncio.Protocol, path))
            await until_waiting(1)
            gone.cancel()
            await until_waiting(0)
            first = asyncio.create_task(connect_passed(asyncio.Protocol, path))
            await until_waiting(1)
            last = asyncio.create_task(connect_passed(asyncio.Protocol, path))
            await until_waiting(2)
            _, connection = await answer_to(place)
            assert await asyncio.get_running_loop().sock_recv(connection, 1) == BEGIN
            await first
            connection.close()
            await until_waiting(1)
        with pytest.raises(ConnectionRefusedError):  # the gate is closed
            await last

    run(main)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_number_stays_with_an_engine_whose_connection_was_taken(
    place: MeetingPlace, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (_, path):
            taking = asyncio.create_task(connect_passed(asyncio.Protocol, path))
            _, first = await answer_to(place)
            await taking
            answer, other = await answer_to(place, run=OTHER_RUN)
            assert answer.verdict is (Verdict.JOINED if is_late else Verdict.LATER)
            answer, again = await answer_to(place)
            assert answer.verdict is (Verdict.LATER if is_late else Verdict.JOINED)
            for each in (first, other, again):
                each.close()

    if is_late:
        monkeypatch.setattr(gates, "_RETURN_S", 0.0)
    run(main)


def test_clients_that_wait_are_bounded(
    place: MeetingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (_, path):
            tasks = [asyncio.create_task(connect_passed(asyncio.Protocol, path)) for _ in range(3)]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert len(ended) == 1
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, ConnectionRefusedError) for error in errors)

    monkeypatch.setattr(gates, "_MAX_CLIENTS", 2)
    run(main)


def test_silent_strangers_keep_no_engine_out(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (made, _):
            strangers = [socket.create_connection((place.host, place.port)) for _ in range(100)]
            async with joining(engine, place):
                guests = made._guests  # pyright: ignore[reportPrivateUsage]
                assert len(guests) <= 64
                ended = 0
                for stranger in strangers:
                    stranger.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        ended += stranger.recv(1) == b""
                assert ended >= 36
            for stranger in strangers:
                stranger.close()

    run(main)


def test_a_flood_of_connections_does_not_stop_the_loop(place: MeetingPlace) -> None:
    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (made, _):
            await asyncio.sleep(0)  # it accepts
            strangers = [socket.create_connection((place.host, place.port)) for _ in range(50)]
            guests = made._guests  # pyright: ignore[reportPrivateUsage]
            turns = 0
            while len(guests) < len(strangers):
                await asyncio.sleep(0)
                turns += 1
            assert turns >= len(strangers)
            for stranger in strangers:
                stranger.close()

    run(main)


def test_each_reason_is_logged_once(place: MeetingPlace, caplog: pytest.LogCaptureFixture) -> None:
    async def main(engine: FakeEngine) -> None:
        secret = MeetingPlace(place.host, place.port, "what one machine knows")
        async with gate(place) as (made, _):
            for _ in range(3):
                for other, fields in ((secret, {}), (place, {"engine": 4})):
                    with contextlib.suppress(HandshakeError):
                        (await answer_to(other, **fields))[1].close()
            _, connection = await answer_to(place)  # in: what comes now may be a new mistake
            while not has_waiting(made):
                await asyncio.sleep(0.01)
            with contextlib.suppress(HandshakeError):
                await answer_to(secret)
            connection.close()

    run(main)
    refusals = [each.getMessage() for each in caplog.records if "may not join" in each.msg]
    assert [("secret" in each) for each in refusals] == [True, False, True]


def test_deadlines_are_by_the_clock_of_the_engines_machine(place: MeetingPlace) -> None:
    """The client's clock is an hour behind."""

    async def main(engine: FakeEngine) -> None:
        async with gate(place) as (_, path), joining(engine, place):
            client, heard = SocketClient(path, FAKE_CODEC, connect_passed), Listener()
            await client.start(heard.on_outputs, heard.on_lost)
            connection = client._connection  # pyright: ignore[reportPrivateUsage]
            assert connection is not None and connection._transport is not None  # pyright: ignore
            now_us = int(1e6 * (time.monotonic() - 3600))
            for number, left_us in ((1, 50 * 10**6), (2, -1)):
                each = EngineRequest(
                    RenderedPrompt.of([1]),
                    (ChoiceRequest(number, {"max_tokens": 8}),),
                    deadline_us=now_us + left_us,
                )
                message = message_encoder().encode(Submit(number, [each], now_us))
                connection._transport.write(frame(message))  # pyright: ignore
            await heard.until(lambda: len(heard.ends) == 2)
            assert heard.ends[1].finish_reason == "length"
            assert heard.ends[2].error_code == "DEADLINE_EXCEEDED"
            await client.close()

    run(main)
