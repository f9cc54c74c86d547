"""What every `EngineClient` must do, as tests over a fake engine.

A test module makes the clients:

    @pytest.fixture(params=...)
    def connect() -> Connect: ...

    from pagemill.engine.testing.client_conformance import *
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from pagemill.engine.client import EngineClient
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.outputs import EngineError
from pagemill.engine.testing.client_listener import (
    Connect,
    Listener,
    expected,
    request,
    run,
    run_loop,
)
from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.rendered_prompt import (
    RenderedPrompt,
)
from pagemill.structured.grammar import Grammar

__all__ = [
    "test_a_call_returns_what_the_engine_returned",
    "test_a_cancelled_submit_can_be_aborted",
    "test_a_client_closes_without_the_requests_of_others",
    "test_a_grammar_that_is_none_is_refused",
    "test_a_held_request_starts_when_it_is_released",
    "test_a_refused_request_takes_the_others_of_its_submit_along",
    "test_a_sampling_field_that_does_not_fit_is_refused",
    "test_aborted_requests_end",
    "test_all_outputs_arrive_in_order",
    "test_calls_outside_the_list_are_refused",
    "test_equal_ids_of_two_clients_are_two_requests",
    "test_pooled_outputs_and_errors_arrive",
    "test_room_is_known_without_a_submit",
    "test_statistics_are_those_of_the_engine",
    "test_what_is_submitted_after_close_is_refused",
]


def test_all_outputs_arrive_in_order(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        for start in range(0, 100, 10):
            await client.submit([request(i, i) for i in range(start, start + 10)])
        await received.until(lambda: len(received.ends) == 100)
        assert received.tokens == {i: expected(i, 8) for i in range(100)}
        assert {end.finish_reason for end in received.ends.values()} == {"length"}

    run(connect, FakeEngine(FakeOptions(step_s=0.0)), body)


def test_equal_ids_of_two_clients_are_two_requests(connect: Connect) -> None:
    async def main() -> None:
        async with connect(engine) as make:
            clients, received = [make(), make()], [Listener(), Listener()]
            for client, listener in zip(clients, received, strict=True):
                await client.start(listener.on_outputs, listener.on_lost)
            for last, client in enumerate(clients):
                await client.submit([request(7, last)])
            for last, listener in enumerate(received):
                await listener.until(lambda: 7 in listener.ends)  # noqa: B023
                assert listener.tokens == {7: expected(last, 8)}
            for client in clients:
                await client.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()


def test_a_client_closes_without_the_requests_of_others(connect: Connect) -> None:
    async def main() -> None:
        async with connect(engine) as make:
            leaving, staying, received = make(), make(), Listener()
            await leaving.start(lambda _: None, lambda _: None)
            await staying.start(received.on_outputs, received.on_lost)
            await leaving.submit([request(i, 1, max_tokens=10**6) for i in range(3)])
            await staying.submit([request(1, 5, max_tokens=40)])
            await leaving.close()
            await received.until(lambda: 1 in received.ends)
            assert received.tokens[1] == expected(5, 40)
            async with asyncio.timeout(60):
                while engine.stats().num_running:
                    await asyncio.sleep(0.01)
            assert engine.stats().finished_abort == 3
            await staying.close()

    engine = FakeEngine()
    run_loop(main())
    engine.shutdown()


def test_a_refused_request_takes_the_others_of_its_submit_along(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        with pytest.raises(EngineError) as refused:
            await client.submit([request(i, 1) for i in range(4)])
        assert (refused.value.code, refused.value.retry_after_s) == ("RESOURCE_EXHAUSTED", 9)
        assert engine.stats().num_running == 0
        with pytest.raises(EngineError) as refused:
            await client.submit([request(9, 1, priority=3)])
        assert (refused.value.code, refused.value.param) == ("INVALID_ARGUMENT", "priority")
        engine.paused = False
        await client.submit([request(10, 1)])
        await received.until(lambda: 10 in received.ends)
        assert received.tokens[10] == expected(1, 8)

    engine = FakeEngine(FakeOptions(max_running=1, max_waiting=2, retry_after_s=9))
    engine.paused = True
    run(connect, engine, body)


def test_room_is_known_without_a_submit(connect: Connect) -> None:
    def refusal(client: EngineClient) -> str:
        try:
            assert client.room() >= 1
        except EngineError as error:
            assert error.code != "RESOURCE_EXHAUSTED" or error.retry_after_s == 9
            return error.code
        return ""

    async def until(client: EngineClient, code: str) -> None:
        async with asyncio.timeout(60):
            while refusal(client) != code:
                await asyncio.sleep(0.001)

    async def main() -> None:
        async with connect(engine) as make:
            busy, other, received = make(), make(), Listener()
            await other.start(lambda _: None, lambda _: None)
            await busy.start(received.on_outputs, received.on_lost)
            assert refusal(other) == refusal(busy) == ""
            async with asyncio.timeout(60):
                while busy.room() != busy.model.max_unfinished:
                    await asyncio.sleep(0.001)
            await busy.submit([request(i, 1) for i in range(3)])
            await until(other, "RESOURCE_EXHAUSTED")
            await until(busy, "RESOURCE_EXHAUSTED")
            engine.paused = False
            await received.until(lambda: len(received.ends) == 3)
            await until(busy, "")
            await until(other, "")
            await other.call("drain")
            await until(busy, "UNAVAILABLE")
            await busy.close()
            assert refusal(busy) == "UNAVAILABLE"
            await other.close()

    engine = FakeEngine(FakeOptions(max_running=1, max_waiting=2, retry_after_s=9))
    engine.paused = True
    run_loop(main())
    engine.shutdown()


def test_a_sampling_field_that_does_not_fit_is_refused(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        broken = ChoiceRequest(1, {"temperature": "warm"})
        with pytest.raises(EngineError) as refused:
            await client.submit([EngineRequest(RenderedPrompt.of([1]), (broken,))])
        assert refused.value.code == "INVALID_ARGUMENT"
        await client.submit([request(2, 1)])
        await received.until(lambda: 2 in received.ends)

    run(connect, FakeEngine(), body)


def test_a_grammar_that_is_none_is_refused(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        bad = msgspec.structs.replace(request(1, 1), grammar=Grammar("nonsense"))
        with pytest.raises(EngineError, match="The grammar is refused") as raised:
            await client.submit([request(2, 2), bad])
        assert raised.value.code == "INVALID_ARGUMENT"
        await client.submit([request(3, 3)])
        await received.until(lambda: 3 in received.ends)
        assert set(received.ends) <= {2, 3}

    run(connect, FakeEngine(FakeOptions(step_s=0.0)), body)


def test_aborted_requests_end(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        await client.submit([request(i, 1, max_tokens=10**6) for i in (1, 2)])
        await received.until(lambda: len(received.tokens) == 2)
        client.abort([1, 2, 77])
        await received.until(lambda: len(received.ends) == 2)
        assert {end.finish_reason for end in received.ends.values()} == {"abort"}

    run(connect, FakeEngine(), body)


def test_a_cancelled_submit_can_be_aborted(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        task = asyncio.create_task(client.submit([request(1, 1, max_tokens=10**6)]))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        client.abort([1])
        await client.submit([request(2, 1)])
        await received.until(lambda: 2 in received.ends)
        assert engine.stats().num_running == 0

    engine = FakeEngine()
    run(connect, engine, body)


def test_a_held_request_starts_when_it_is_released(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        await client.submit([request(1, 1, starts_held=True), request(2, 2)])
        await received.until(lambda: 2 in received.ends)
        assert 1 not in received.tokens
        client.release(1)
        await received.until(lambda: 1 in received.ends)

    run(connect, FakeEngine(), body)


def test_a_call_returns_what_the_engine_returned(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        assert await client.call("reset_prefix_cache") is True
        assert await client.call("drain") is None
        with pytest.raises(EngineError) as refused:
            await client.submit([request(1, 1)])
        assert refused.value.code == "UNAVAILABLE"

    run(connect, FakeEngine(), body)


def test_calls_outside_the_list_are_refused(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        for operation in ("shutdown", "__class__", "submit", "", "x" * 1000):
            with pytest.raises(EngineError, match="no operation") as refused:
                await client.call(operation)
            assert refused.value.code == "UNIMPLEMENTED"
        with pytest.raises(EngineError, match="does not take these arguments"):
            await client.call("drain", why="because")

    run(connect, FakeEngine(), body)


def test_pooled_outputs_and_errors_arrive(connect: Connect) -> None:
    async def pools(client: EngineClient, received: Listener) -> None:
        pooling = ChoiceRequest(1, None)
        await client.submit([EngineRequest(RenderedPrompt.of([1]), (pooling,))])
        await received.until(lambda: 1 in received.ends)
        pooled = received.ends[1].pooled
        assert pooled is not None and pooled.shape == (4,)

    async def fails(client: EngineClient, received: Listener) -> None:
        await client.submit([request(1, 1)])
        await received.until(lambda: 1 in received.ends)
        assert (received.ends[1].finish_reason, received.ends[1].error_code) == (
            "error",
            "INTERNAL",
        )

    run(connect, FakeEngine(FakeOptions(pooled_size=4)), pools)
    run(connect, FakeEngine(FakeOptions(fail_at_position=2)), fails)


def test_statistics_are_those_of_the_engine(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        await client.submit([request(1, 1, 2, 3)])
        await received.until(lambda: 1 in received.ends)
        async with asyncio.timeout(60):
            while client.stats().prompt_tokens != 3 or client.stats().generation_tokens != 8:
                await asyncio.sleep(0.02)
        names = {row[0] for row in client.stats().fields}
        assert {"prompt_tokens", "num_running"} <= names

    run(connect, FakeEngine(), body)


def test_what_is_submitted_after_close_is_refused(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        await client.close()
        assert not client.connected
        with pytest.raises(EngineError) as refused:
            await client.submit([request(1, 1)])
        assert refused.value.code == "UNAVAILABLE"
        client.abort([1])

    run(connect, FakeEngine(), body)
