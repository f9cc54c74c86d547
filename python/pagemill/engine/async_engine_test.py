"""AsyncEngine over the fake engine: routing, fan-out, aborts, failures, nothing leaks."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import pytest

from pagemill.engine.async_engine import AsyncEngine, Prompt
from pagemill.engine.local_client import LocalClient
from pagemill.engine.messages import ModelFacts
from pagemill.engine.outputs import EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingDefaults, SamplingParams
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_model import FakeOptions, next_token
from pagemill.engine.testing.fake_types import FakeStatusError
from pagemill.inputs.rendered_prompt import RenderedPrompt

MODEL = ModelFacts(names=("fake",), path="", max_model_len=256, vocab_size=256)


def over(fake: FakeEngine) -> AsyncEngine:
    return AsyncEngine(LocalClient(fake_bindings(fake), MODEL), [0])


@contextlib.asynccontextmanager
async def started(fake: FakeEngine) -> AsyncGenerator[AsyncEngine, None]:
    engine = over(fake)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.shutdown()
        fake.shutdown()


def prompt(*ids: int, max_tokens: int = 8) -> Prompt:
    return Prompt(RenderedPrompt.of(ids), max_tokens)


def sampling(n: int = 1, seed: int | None = 7) -> SamplingParams:
    return SamplingDefaults().fill(SamplingParams(n=n, seed=seed))


def expected(last: int, seed: int, count: int) -> list[int]:
    tokens: list[int] = []
    for position in range(count):
        last = next_token(last, position, seed)
        tokens.append(last)
    return tokens


async def collect(stream: RequestStream) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    with stream:
        async for outputs in stream:
            assert len({o.index for o in outputs}) == len(outputs)
            for output in outputs:
                tokens.setdefault(output.index, []).extend(output.token_ids)
    return tokens


def test_requests_are_aborted_by_name() -> None:
    async def body() -> None:
        fake = FakeEngine(FakeOptions())
        async with started(fake) as engine:
            fake.paused = True
            streams = [await engine.submit([prompt(1)], sampling(n=2), name=name) for name in "abc"]
            assert engine.abort({"a", "x"}) == 1
            ends = [output.finish_reason for output in streams[0].take()]
            assert ends == ["abort", "abort"] and streams[0].exhausted
            assert not streams[1].exhausted
            assert engine.abort(None) == 2
            assert engine.abort(None) == 0
            assert engine.num_live == 0
            engine.check_integrity()

    asyncio.run(body())


def test_a_refusal_says_when_to_retry() -> None:
    async def body() -> None:
        fake = FakeEngine(FakeOptions(max_running=0, max_waiting=0, retry_after_s=12))
        async with started(fake) as engine:
            with pytest.raises(EngineError) as refused:
                await engine.submit([prompt(1)], sampling())
            assert refused.value.code == "RESOURCE_EXHAUSTED"
            assert refused.value.retry_after_s == 12

    asyncio.run(body())


def test_a_priority_that_is_refused_is_named() -> None:
    async def body() -> None:
        async with started(FakeEngine()) as engine:
            with pytest.raises(EngineError, match="priority is 3") as refused:
                await engine.submit([prompt(1)], sampling(), priority=3)
            assert refused.value.param == "priority"

    asyncio.run(body())


def test_all_choices_have_priority_salt_and_tenant_of_their_request() -> None:
    async def body() -> None:
        fake = FakeEngine(FakeOptions(uses_priority=True))
        async with started(fake) as engine:
            stream = await engine.submit(
                [prompt(1)],
                sampling(n=2),
                priority=-2,
                cache_salt="salt",
                tenant="blue",
                kv_transfer_params={"peer": "x"},
            )
            await collect(stream)
        assert [
            (r.priority, r.cache_salt, r.tenant, r.kv_transfer_params)
            for r in (state.request for state in fake.submitted)
        ] == [(-2, "salt", "blue", {"peer": "x"})] * 2

    asyncio.run(body())


def test_choices_of_all_prompts_and_their_seeds() -> None:
    async def body() -> None:
        async with started(FakeEngine()) as engine:
            got = await collect(await engine.submit([prompt(1, 2), prompt(3)], sampling(n=2)))
            assert got == {
                0: expected(2, 7, 8),
                1: expected(2, 8, 8),
                2: expected(3, 7, 8),
                3: expected(3, 8, 8),
            }
            assert engine.num_live == 0

    asyncio.run(body())


def test_a_request_without_a_seed_gets_a_new_one_each_time() -> None:
    async def body() -> None:
        async with started(FakeEngine()) as engine:
            got = [
                await collect(await engine.submit([prompt(1)], sampling(seed=None)))
                for _ in range(8)
            ]
            assert any(other != got[0] for other in got[1:])

    asyncio.run(body())


def test_many_requests_at_once_stay_apart() -> None:
    async def body() -> None:
        async with started(FakeEngine(FakeOptions(step_s=0.0))) as engine:
            streams = [await engine.submit([prompt(i % 100)], sampling(seed=i)) for i in range(150)]
            engine.check_integrity()
            got = await asyncio.gather(*[collect(stream) for stream in streams])
            for i, tokens in enumerate(got):
                assert tokens == {0: expected(i % 100, i, 8)}

    asyncio.run(body())


def test_leaving_the_block_aborts() -> None:
    async def body() -> None:
        fake = FakeEngine()
        async with started(fake) as engine:
            with await engine.submit([prompt(1, max_tokens=10**6)], sampling(n=3)) as stream:
                await anext(stream)
                assert engine.num_live == 3
            assert engine.num_live == 0
            assert fake.stats().finished_abort == 3
            assert fake.stats().num_running == 0

    asyncio.run(body())


def test_cancelling_the_consumer_aborts() -> None:
    async def body() -> None:
        fake = FakeEngine()
        async with started(fake) as engine:
            task = asyncio.create_task(
                collect(await engine.submit([prompt(1, max_tokens=10**6)], sampling()))
            )
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert fake.stats().num_running == 0
            assert engine.num_live == 0

    asyncio.run(body())


def test_stopping_one_choice_leaves_the_others() -> None:
    async def body() -> None:
        async with started(FakeEngine()) as engine:
            tokens: dict[int, list[int]] = {0: [], 1: []}
            with await engine.submit([prompt(5, max_tokens=20)], sampling(n=2)) as stream:
                async for outputs in stream:
                    for output in outputs:
                        tokens[output.index] += output.token_ids
                        if output.index == 0:
                            stream.stop(0)
            assert 1 <= len(tokens[0]) < 20
            assert tokens[1] == expected(5, 8, 20)

    asyncio.run(body())


def test_a_refused_child_aborts_its_siblings() -> None:
    async def body() -> None:
        fake = FakeEngine(FakeOptions(max_running=1, max_waiting=1))
        fake.paused = True
        async with started(fake) as engine:
            with pytest.raises(EngineError) as refusal:
                await engine.submit([prompt(1)], sampling(n=3))
            assert refusal.value.code == "RESOURCE_EXHAUSTED"
            assert engine.num_live == 0
            assert fake.stats().finished_abort == 2

    asyncio.run(body())


def test_the_refusal_names_the_field() -> None:
    async def body() -> None:
        async with started(FakeEngine()) as engine:
            with pytest.raises(EngineError) as refusal:
                await engine.submit(
                    [prompt(1)], SamplingDefaults().fill(SamplingParams(temperature=-1.0))
                )
            assert (refusal.value.code, refusal.value.param) == ("INVALID_ARGUMENT", "temperature")

    asyncio.run(body())


def test_several_greedy_choices_are_refused() -> None:
    async def body() -> None:
        async with started(FakeEngine()) as engine:
            greedy = SamplingDefaults().fill(SamplingParams(n=2, temperature=0.0))
            with pytest.raises(EngineError) as refusal:
                await engine.submit([prompt(1)], greedy)
            assert refusal.value.param == "n"

    asyncio.run(body())


def test_a_failing_request_ends_with_its_error() -> None:
    async def body() -> None:
        async with started(FakeEngine(FakeOptions(fail_at_position=3))) as engine:
            tokens: list[int] = []
            with await engine.submit([prompt(1)], sampling()) as stream:
                async for outputs in stream:
                    tokens += outputs[0].token_ids
                    error = outputs[0].error
            assert len(tokens) == 3
            assert error is not None and error.code == "INTERNAL"
            assert engine.num_live == 0

    asyncio.run(body())


def test_shutdown_ends_every_stream() -> None:
    async def body() -> None:
        engine = over(FakeEngine())
        await engine.start()
        stream = await engine.submit([prompt(1, max_tokens=10**6)], sampling())
        task = asyncio.create_task(collect(stream))
        await asyncio.sleep(0.02)
        await engine.shutdown()
        with pytest.raises(EngineError) as failure:
            await asyncio.wait_for(task, 60)
        assert failure.value.code == "UNAVAILABLE"

    asyncio.run(body())


def test_a_broken_poll_fails_the_streams_and_not_the_loop() -> None:
    class Broken(FakeEngine):
        def take(self, number: int):
            super().take(number)
            raise FakeStatusError("INTERNAL", "The engine's thread is gone.")

    async def body() -> None:
        engine = over(Broken())
        await engine.start()
        with pytest.raises(EngineError) as failure:
            await asyncio.wait_for(collect(await engine.submit([prompt(1)], sampling())), 60)
        assert failure.value.message == "The engine's thread is gone."
        await engine.shutdown()

    asyncio.run(body())


def test_a_slow_consumer_gets_everything_in_few_pieces() -> None:
    async def body() -> None:
        async with started(FakeEngine(FakeOptions(step_s=0.0))) as engine:
            pieces: Sequence[int] = []
            tokens: list[int] = []
            with await engine.submit([prompt(9, max_tokens=300)], sampling()) as stream:
                async for (output,) in stream:
                    tokens += output.token_ids
                    pieces = [*pieces, len(output.token_ids)]
                    await asyncio.sleep(0.02)
            assert tokens == expected(9, 7, 300)
            assert len(pieces) < 100

    asyncio.run(body())


def test_pooling() -> None:
    async def body() -> None:
        async with started(FakeEngine(FakeOptions(pooled_size=4))) as engine:
            with await engine.submit([prompt(1), prompt(2)], None) as stream:
                found = {o.index: o.pooled async for outputs in stream for o in outputs}
            assert sorted(found) == [0, 1]
            assert all(v is not None and v.shape == (4,) for v in found.values())

    asyncio.run(body())
