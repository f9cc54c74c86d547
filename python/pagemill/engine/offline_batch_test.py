"""Several batches on one engine by one thread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pagemill.engine.fan_out import child_sampling
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.offline_batch import OfflineBatch, OfflineQueue
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.sampling import SamplingDefaults, SamplingParams
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.rendered_prompt import RenderedPrompt

IDS = itertools.count(1)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    started = FakeEngine(FakeOptions(max_running=1, max_waiting=1))
    yield started
    started.shutdown()


@pytest.fixture
def queue(engine: FakeEngine) -> OfflineQueue:
    return OfflineQueue(fake_bindings(engine), window=2)


class Collected:
    """A batch of requests for `max_tokens` tokens each, and the tokens of each of them."""

    def __init__(
        self, queue: OfflineQueue, count: int, max_tokens: int = 4, temperature: float = 0.0
    ) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(count)]
        self.batch = OfflineBatch(
            queue, [request(max_tokens, temperature) for _ in range(count)], self._take
        )

    def _take(self, output: ChoiceOutput) -> None:
        self.tokens[output.index] += output.token_ids

    @property
    def num_tokens(self) -> list[int]:
        return [len(tokens) for tokens in self.tokens]


def request(max_tokens: int, temperature: float) -> EngineRequest:
    stated = SamplingDefaults().fill(SamplingParams(temperature=temperature))
    (child,) = child_sampling(stated, max_tokens=max_tokens, eos_token_ids=())
    return EngineRequest(RenderedPrompt.of([5, 6]), (ChoiceRequest(next(IDS), child),))


def test_a_batch_may_be_larger_than_the_engines_queue(queue: OfflineQueue) -> None:
    many = Collected(queue, 20)
    many.batch.run()
    assert many.num_tokens == [4] * 20


def test_a_batch_that_waits_loses_nothing_to_another(queue: OfflineQueue) -> None:
    first, second = Collected(queue, 5, max_tokens=50), Collected(queue, 3)
    first.batch.submit()
    second.batch.run()
    assert second.num_tokens == [4] * 3
    while not first.batch.ended:
        first.batch.step()
    assert first.num_tokens == [50] * 5


def test_a_refusal_ends_its_batch_alone(engine: FakeEngine, queue: OfflineQueue) -> None:
    fine, refused = Collected(queue, 3), Collected(queue, 3, temperature=-1.0)
    fine.batch.submit()
    with pytest.raises(EngineError, match="temperature"):
        refused.batch.run()
    assert refused.batch.ended
    while not fine.batch.ended:
        fine.batch.step()
    assert fine.num_tokens == [4] * 3
    assert len(engine.submitted) == 3


def test_a_pause_is_an_error_and_no_end(engine: FakeEngine, queue: OfflineQueue) -> None:
    engine.paused = True
    kept, left = Collected(queue, 1), Collected(queue, 1)
    kept.batch.submit()
    with pytest.raises(EngineError, match=r"resume\(\)"):
        left.batch.run()
    engine.paused = False
    while not kept.batch.ended:
        kept.batch.step()
    assert (kept.num_tokens, left.num_tokens) == ([4], [0])


def test_closing_aborts_what_runs_and_what_waits(engine: FakeEngine, queue: OfflineQueue) -> None:
    left = Collected(queue, 5, max_tokens=10**6)
    left.batch.submit()
    left.batch.step()
    left.batch.close()
    assert left.batch.ended and left.batch.failure is None
    after = Collected(queue, 1)
    after.batch.run()
    assert after.num_tokens == [4]
    assert len(engine.submitted) == 3
    assert engine.stats().num_running == 0
