"""What a stream's deltas hold: a token each, unless the reader is behind or an interval is set."""

import asyncio
from collections.abc import Callable, Coroutine

import numpy as np
import pytest

from pagemill.engine.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.stop_strings import StopStringFilter
from pagemill.server.errors import ApiError
from pagemill.server.fake_renderer import FakeRenderer
from pagemill.server.generation import Generation


class Feed:
    """A generation of one choice, whose outputs the test pushes."""

    def __init__(self, stop: str = "") -> None:
        self.aborted: list[int] = []
        self.stream = RequestStream(self.aborted.append)
        self.stream.adopt(1, 0)
        self.metrics = RequestMetrics("m", 100)
        stop_filter = StopStringFilter([stop]) if stop else None
        assembler = ChoiceAssembler(FakeRenderer().detokenizer(), stop_filter)
        self.generation = Generation(
            self.stream, [assembler], self.metrics, [np.array([97])], SamplingParams()
        )

    def push(self, text: str, at: float = 0.0, finish: str | None = None, **more: object) -> None:
        ids = list(text.encode())
        times = [at] * len(ids)
        made = ChoiceOutput(0, ids, times, finish_reason=finish, created=at)
        for name, value in more.items():
            setattr(made, name, value)
        self.stream.push(1, made)

    def sample(self, name: str) -> float:
        value = self.metrics.registry.get_sample_value(
            f"pagemill:{name}", {"model_name": "m", "engine": "0"}
        )
        assert value is not None
        return value


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


async def texts(feed: Feed, portion: int) -> list[str]:
    return [delta.text async for batch in feed.generation.deltas(portion) for delta in batch]


def test_tokens_that_arrive_together_become_a_delta_each() -> None:
    async def body() -> None:
        feed = Feed()
        feed.push("abc")
        reader = feed.generation.deltas(1)
        assert [delta.text for delta in await anext(reader)] == ["a", "b", "c"]
        task = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        feed.push("de", finish="length")
        deltas = list(await task)
        assert [delta.text for delta in deltas] == ["d", "e"]
        assert [delta.finish_reason for delta in deltas] == [None, "length"]

    run(body)


def test_usage_counts_up_to_the_delta_that_was_read() -> None:
    async def body() -> None:
        feed = Feed()
        feed.push("abc", finish="length")
        async for batch in feed.generation.deltas(1):
            counts = [feed.generation.usage.completion_tokens for _ in batch]
            assert counts == [1, 2, 3]
        assert feed.generation.prompt_usage.completion_tokens == 0

    run(body)


def test_a_reader_that_is_behind_gets_what_it_missed_as_one() -> None:
    async def body() -> None:
        feed = Feed()
        reader = feed.generation.deltas(1)
        feed.push("a")
        assert [delta.text for delta in await anext(reader)] == ["a"]
        for token in "bcd":  # while the reader writes "a" to a connection that is full
            feed.push(token)
        assert [delta.text for delta in await anext(reader)] == ["bcd"]
        task = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        feed.push("ef")
        assert [delta.text for delta in await task] == ["e", "f"]

    run(body)


@pytest.mark.parametrize(
    ("pushed", "want"),
    [
        (["a", "b", "c", "d", "e", "f", "g", "h"], ["a", "bcd", "efg", "h!"]),
        (["abcdefgh"], ["a", "bcd", "efg", "h!"]),
        (["a", "bcdefg", "h"], ["a", "bcd", "efg", "h!"]),
        (["a", "b"], ["a", "b!"]),
        ([], ["!"]),
    ],
)
def test_interval(pushed: list[str], want: list[str]) -> None:
    async def body() -> None:
        feed = Feed()
        got: list[str] = []

        async def read() -> None:
            got.extend(await texts(feed, 3))

        reader = asyncio.ensure_future(read())
        for text in pushed:
            await asyncio.sleep(0)
            feed.push(text)
        await asyncio.sleep(0)
        feed.push("!", finish="length")
        await reader
        assert got == want

    run(body)


def test_a_stop_string_within_an_output_ends_the_choice_there() -> None:
    async def body() -> None:
        for portion in (0, 1, 3):
            feed = Feed(stop="cd")
            feed.push("abcdef")
            assert "".join(await texts(feed, portion)) == "ab"
            assert feed.generation.usage.completion_tokens == 4
            assert feed.aborted == [1]

    run(body)


def test_what_waits_for_others_is_delivered_before_a_failure() -> None:
    async def body() -> None:
        for at_once in (False, True):
            feed = Feed()
            feed.push("abc")
            if at_once:
                feed.stream.fail(EngineError("INTERNAL", "The engine is gone."))
            else:
                error = EngineError("INTERNAL", "The runner failed this request.")
                feed.push("d", finish="error", error=error)
            got: list[ChoiceDelta] = []
            with pytest.raises(ApiError):
                async for batch in feed.generation.deltas(10):
                    got += batch
            assert "".join(delta.text for delta in got) == ("abc" if at_once else "abcd")
            assert all(delta.finish_reason is None for delta in got)

    run(body)


@pytest.mark.parametrize("portion", [0, 1, 5])
def test_latencies_are_observed_per_token(portion: int) -> None:
    async def body() -> None:
        feed = Feed()
        start = feed.generation._arrived  # pyright: ignore[reportPrivateUsage]
        reader = feed.generation.deltas(portion)
        feed.push("a", at=start + 1.0)
        list(await anext(reader))
        feed.push("b", at=start + 3.0)  # merged with the next: the reader is behind
        feed.push("cd", at=start + 7.0)
        feed.push("e", at=start + 8.0, finish="length")
        async for batch in reader:
            list(batch)
        assert feed.sample("time_to_first_token_seconds_sum") == pytest.approx(1.0)
        assert feed.sample("inter_token_latency_seconds_count") == 4
        assert feed.sample("inter_token_latency_seconds_sum") == pytest.approx(7.0)
        assert feed.sample("e2e_request_latency_seconds_sum") == pytest.approx(8.0)
        buckets = {
            bound: feed.metrics.registry.get_sample_value(
                "pagemill:inter_token_latency_seconds_bucket",
                {"model_name": "m", "engine": "0", "le": bound},
            )
            for bound in ("0.001", "1.0", "2.5", "5.0")
        }
        assert buckets == {"0.001": 1, "1.0": 2, "2.5": 3, "5.0": 4}

    run(body)


def test_offsets_count_characters_of_the_text() -> None:
    async def body() -> None:
        for portion in (0, 1, 4):
            feed = Feed()
            feed.push("a☃b\0", finish="stop")
            offsets: list[int] = []
            async for batch in feed.generation.deltas(portion):
                for delta in batch:
                    offsets += delta.offsets
            # "☃" is three tokens; it counts from the last of them on.
            assert offsets == [0, 1, 1, 1, 2, 3]

    run(body)
