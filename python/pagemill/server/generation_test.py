"""What deltas hold: a token each, unless a larger portion is taken."""

import numpy as np
import pytest

from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.server.generation import Generation
from pagemill.server.testing.fake_renderer import FakeRenderer


class Feed:
    """A generation of one choice, whose outputs the test pushes."""

    def __init__(self, stop: str = "") -> None:
        self.aborted: list[int] = []
        self.stream = RequestStream(self.aborted.append)
        self.stream.adopt(1, 0)
        self.metrics = RequestMetrics("m", 100)
        stops = [stop] if stop else []
        assembler = ChoiceAssembler(FakeRenderer().detokenizer(), stop=stops)
        self.generation = Generation(
            self.stream, [assembler], self.metrics, [np.array([97])], SamplingParams()
        )

    def push(self, text: str, at: float = 0.0, finish: str | None = None, **more: object) -> None:
        ids = list(text.encode())
        times = [at] * len(ids)
        output = ChoiceOutput(0, ids, times, finish_reason=finish, created=at)
        for name, value in more.items():
            setattr(output, name, value)
        self.stream.push(1, output)

    def take(self, portion: int) -> list[ChoiceDelta]:
        return list(self.generation.take(portion))

    def sample(self, name: str) -> float:
        value = self.metrics.registry.get_sample_value(
            f"pagemill:{name}", {"model_name": "m", "engine": "0"}
        )
        assert value is not None
        return value


def texts(deltas: list[ChoiceDelta]) -> list[str]:
    return [delta.text for delta in deltas]


def test_tokens_that_arrive_together_become_a_delta_each() -> None:
    feed = Feed()
    feed.push("abc")
    assert texts(feed.take(1)) == ["a", "b", "c"]
    feed.push("de", finish="length")
    deltas = feed.take(1)
    assert texts(deltas) == ["d", "e"]
    assert [delta.finish_reason for delta in deltas] == [None, "length"]
    assert feed.generation.ended


def test_a_listener_hears_of_each_output_and_of_the_end() -> None:
    feed = Feed()
    heard: list[str] = []
    feed.generation.listen(lambda: heard.append("".join(texts(feed.take(1)))))
    feed.push("a")
    feed.push("bc")
    assert heard == ["a", "bc"]
    feed.stream.fail(EngineError("INTERNAL", "The engine is gone."))
    assert feed.generation.ended
    feed.generation.close()
    assert heard == ["a", "bc", ""]


def test_usage_counts_up_to_the_delta_that_was_read() -> None:
    feed = Feed()
    feed.push("abc", finish="length")
    counts = [feed.generation.usage.completion_tokens for _ in feed.generation.take(1)]
    assert counts == [1, 2, 3]
    assert feed.generation.prompt_usage.completion_tokens == 0


def test_a_reader_that_is_behind_gets_what_it_missed_as_one() -> None:
    feed = Feed()
    feed.push("a")
    assert texts(feed.take(1)) == ["a"]
    for token in "bcd":
        feed.push(token)
    assert texts(feed.take(0)) == ["bcd"]


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
    feed = Feed()
    got: list[str] = []
    for text in pushed:
        feed.push(text)
        got += texts(feed.take(3))
    feed.push("!", finish="length")
    assert got + texts(feed.take(3)) == want


@pytest.mark.parametrize("portion", [0, 1, 3])
def test_a_stop_string_within_an_output_ends_the_choice_there(portion: int) -> None:
    feed = Feed(stop="cd")
    feed.push("abcdef")
    assert "".join(texts(feed.take(portion))) == "ab"
    assert feed.generation.usage.completion_tokens == 4
    assert feed.aborted == [1]
    assert feed.generation.ended


@pytest.mark.parametrize("portion", [0, 1, 10])
@pytest.mark.parametrize("at_once", [False, True])
def test_what_waits_for_others_is_delivered_before_a_failure(portion: int, at_once: bool) -> None:
    feed = Feed()
    feed.push("a")
    got = feed.take(portion)
    feed.push("b")
    if at_once:
        feed.stream.fail(EngineError("INTERNAL", "The engine is gone."))
    else:
        error = EngineError("INTERNAL", "The runner failed this request.")
        feed.push("c", finish="error", error=error)
    got += feed.take(portion)
    assert "".join(texts(got)) == ("ab" if at_once else "abc")
    assert all(delta.finish_reason is None for delta in got)
    failure = feed.generation.failure
    assert failure is not None and failure.status == 500
    assert feed.generation.ended


@pytest.mark.parametrize("portion", [0, 1, 5])
def test_latencies_are_observed_per_token(portion: int) -> None:
    feed = Feed()
    start = feed.generation._arrived  # pyright: ignore[reportPrivateUsage]
    feed.push("a", at=start + 1.0)
    feed.take(portion)
    feed.push("b", at=start + 3.0)  # merged with the next: the reader is behind
    feed.push("cd", at=start + 7.0)
    feed.push("e", at=start + 8.0, finish="length")
    feed.take(portion)
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


@pytest.mark.parametrize("portion", [0, 1, 4])
def test_offsets_count_characters_of_the_text(portion: int) -> None:
    feed = Feed()
    feed.push("a\u2603b\0", finish="stop")
    offsets = [offset for delta in feed.take(portion) for offset in delta.offsets]
    # The snowman is three tokens; it counts from the last of them on.
    assert offsets == [0, 1, 1, 1, 2, 3]
