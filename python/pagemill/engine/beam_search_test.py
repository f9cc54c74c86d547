"""Beam search against all outputs that there are, over a language model of few tokens."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Collection, Sequence

import pytest

from pagemill.engine.async_engine import Prompt
from pagemill.engine.beam_search import BeamLogprobs, BeamOptions, BeamSearch
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.inputs.rendered_prompt import RenderedPrompt

VOCAB, EOS = 4, 0


def next_logprobs(tokens: Sequence[int]) -> list[float]:
    rng = random.Random(str(tokens))
    weights = [rng.random() ** 3 + 1e-3 for _ in range(VOCAB)]
    return [math.log(weight / sum(weights)) for weight in weights]


class ToyEngine:
    """Answers a step soon; counts the streams that were not closed. `admitted`: tokens that a
    grammar admits."""

    def __init__(self, fails_after: int = 10**9, admitted: Collection[int] = range(VOCAB)) -> None:
        self.num_open = 0
        self.num_steps = 0
        self._fails_after = fails_after
        self._admitted = admitted

    async def submit(self, prompts: Sequence[Prompt]) -> RequestStream:
        await asyncio.sleep(0)
        self.num_steps += 1
        if self.num_steps > self._fails_after:
            raise EngineError("RESOURCE_EXHAUSTED", "full")
        self.num_open += 1
        stream = RequestStream(lambda child: None)
        for index, prompt in enumerate(prompts):
            assert prompt.max_tokens == 1
            logprobs = next_logprobs(prompt.rendered.token_ids.tolist())
            logprobs = [
                each if token in self._admitted else -math.inf
                for token, each in enumerate(logprobs)
            ]
            top = sorted(enumerate(logprobs), key=lambda pair: -pair[1])
            sampled = BeamLogprobs(*top[0], 1, top)
            stream.adopt(index, index)
            stream.push(
                index, ChoiceOutput(index, [top[0][0]], [0.0], [sampled], finish_reason="length")
            )
        close = stream.close

        def counted() -> None:
            self.num_open -= 1
            close()

        stream.close = counted
        return stream


def found(
    engine: ToyEngine, options: BeamOptions, max_tokens: int, prompts: Sequence[list[int]] = ([1],)
) -> tuple[BeamSearch, list[ChoiceOutput]]:
    async def run() -> tuple[BeamSearch, list[ChoiceOutput]]:
        ended = asyncio.Event()
        given = [Prompt(RenderedPrompt.of(ids), max_tokens) for ids in prompts]
        search = BeamSearch(engine.submit, given, options, keeps_logprobs=True)
        search.listen(ended.set)
        await asyncio.wait_for(ended.wait(), 60)
        outputs = search.take()
        assert search.exhausted
        return search, outputs

    search, outputs = asyncio.run(run())
    assert engine.num_open == 0
    return search, outputs


def all_outputs(
    prompt: list[int], max_tokens: int, score: Callable[[float, int], float]
) -> list[tuple[float, tuple[int, ...]]]:
    """Every output with its score, the best one first."""
    scored: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(range(VOCAB), repeat=max_tokens):
        output = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        logprob = sum(
            next_logprobs([*prompt, *output[:at]])[token] for at, token in enumerate(output)
        )
        scored[output] = score(logprob, len(output))
    return sorted(((value, tokens) for tokens, value in scored.items()), reverse=True)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.5, -1.0])
def test_wide_beams_find_the_best_outputs(length_penalty: float) -> None:
    """As wide as the tree: nothing is missed, early ends included."""
    options = BeamOptions(width=VOCAB**3, length_penalty=length_penalty, ends=[EOS])
    for prompt in ([1], [2, 3], [0]):
        _, outputs = found(ToyEngine(), options, 4, [prompt])
        best = all_outputs(prompt, 4, lambda logprob, length: logprob / length**length_penalty)
        for output, (_, tokens) in zip(outputs, best, strict=False):
            assert tuple(output.token_ids) == tokens
            assert output.finish_reason == ("stop" if EOS in tokens else "length")
            assert output.logprobs is not None
            assert [each.token_id for each in output.logprobs] == output.token_ids


def test_one_beam_is_greedy() -> None:
    engine = ToyEngine()
    options = BeamOptions(width=1, length_penalty=1.0, ends=[])
    _, (output,) = found(engine, options, 8)
    tokens = [1]
    for _ in range(8):
        logprobs = next_logprobs(tokens)
        tokens.append(logprobs.index(max(logprobs)))
    assert output.token_ids == tokens[1:]
    assert engine.num_steps == 8


def test_it_ends_when_nothing_can_become_better() -> None:
    engine = ToyEngine()
    found(engine, BeamOptions(width=2, length_penalty=0.0, ends=[EOS]), 500)
    assert engine.num_steps < 60


def test_several_prompts_have_outputs_in_their_order() -> None:
    options = BeamOptions(width=2, length_penalty=1.0, ends=[EOS])
    _, together = found(ToyEngine(), options, 5, [[1], [2], [3]])
    alone = [found(ToyEngine(), options, 5, [[prompt]])[1] for prompt in (1, 2, 3)]
    assert [o.token_ids for o in together] == [o.token_ids for each in alone for o in each]
    assert [output.index for output in together] == list(range(6))


def test_outputs_are_repeated_if_there_are_too_few() -> None:
    options = BeamOptions(width=3, length_penalty=1.0, ends=[EOS], constrained=True)
    _, outputs = found(ToyEngine(admitted=[EOS]), options, 5, [[1], [2]])
    assert [(output.index, output.token_ids) for output in outputs] == [
        (i, [EOS]) for i in range(6)
    ]


def test_a_refusal_in_the_middle_ends_it() -> None:
    options = BeamOptions(width=2, length_penalty=1.0, ends=[])
    search, outputs = found(ToyEngine(fails_after=3), options, 10, [[1], [2]])
    assert outputs == [] and search.failure is not None
    assert search.failure.code == "RESOURCE_EXHAUSTED"


def test_a_refusal_at_the_beginning_is_told() -> None:
    """As that of one prompt among several is, whose first steps the engine has taken."""

    async def run(fails_after: int) -> None:
        options = BeamOptions(width=2, length_penalty=1.0, ends=[])
        prompts = [Prompt(RenderedPrompt.of([number]), 4) for number in range(3)]
        engine = ToyEngine(fails_after)
        search = BeamSearch(engine.submit, prompts, options, keeps_logprobs=False)
        await search.wait_submitted()

    for fails_after in range(3):
        with pytest.raises(EngineError, match="full"):
            asyncio.run(run(fails_after))
    asyncio.run(run(3))  # later ones are in the stream


def test_a_caller_that_waits_no_longer_closes_it() -> None:
    async def run() -> None:
        async def submit(prompts: Sequence[Prompt]) -> RequestStream:
            await asyncio.Event().wait()
            raise AssertionError

        options = BeamOptions(width=2, length_penalty=1.0, ends=[])
        prompts = [Prompt(RenderedPrompt.of([1]), 4)]
        search = BeamSearch(submit, prompts, options, keeps_logprobs=False)
        waiting = asyncio.create_task(search.wait_submitted())
        await asyncio.sleep(0)
        waiting.cancel()
        while not search.exhausted:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_it_can_be_closed_at_any_time() -> None:
    engine = ToyEngine()

    async def run() -> None:
        options = BeamOptions(width=2, length_penalty=1.0, ends=[])
        prompts = [Prompt(RenderedPrompt.of([1]), 10**6)]
        search = BeamSearch(engine.submit, prompts, options, keeps_logprobs=False)
        async with asyncio.timeout(60):
            while not engine.num_steps:
                await asyncio.sleep(0)
            search.close()
            search.close()
            while not search.exhausted:
                await asyncio.sleep(0)
        assert engine.num_open == 0

    asyncio.run(run())
    assert 0 < engine.num_steps < 10**5
