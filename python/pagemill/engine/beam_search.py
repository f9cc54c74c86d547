"""Beam search: the most likely outputs of a prompt, found one token at a time.

Every step is a request of its own for one token of each beam, which finds the rest in the prefix
cache. That is slow, and needs nothing of the engine but log probabilities.

`beam_steps` is the search itself; `BeamSearch` runs it for a server, `offline_beams` without one.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec import structs

from pagemill.config.sampling import LOGPROBS_MODES
from pagemill.engine.async_engine import Prompt
from pagemill.engine.outputs import (
    ChoiceOutput,
    EngineError,
    TokenLogprobs,
    ended_by_operator,
)
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import ALL_LOGPROBS, SamplingParams

_LOGGER = logging.getLogger("pagemill.engine")

Submit = Callable[[Sequence[Prompt]], Awaitable[RequestStream]]
"""Submits prompts, for one token each with its log probability and those of alternatives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamOptions:
    """`width`: outputs of a prompt, and beams that are followed. `length_penalty`: outputs are
    ranked by the log probability of all tokens, divided by their number to this power. `ends`:
    tokens that end an output. `constrained`: outputs have a grammar, or plugins have a
    say in them, and they are ranked by probabilities among the tokens that may come."""

    width: int
    length_penalty: float
    ends: Collection[int]
    constrained: bool = False

    @property
    def num_alternatives(self) -> int:
        """Most likely tokens that each step needs: with some that end an output, enough go on."""
        return 2 * self.width

    def step_sampling(self, sampling: SamplingParams) -> SamplingParams:
        """How a step of a request with `sampling` is sampled."""
        logprobs = max(sampling.logprobs or 0, self.num_alternatives)
        if sampling.logprobs == ALL_LOGPROBS:
            logprobs = ALL_LOGPROBS
        return structs.replace(
            sampling,
            n=1,
            temperature=0.0,
            logprobs=logprobs,
            logprobs_mode="processed_logprobs" if self.constrained else LOGPROBS_MODES[0],
        )

    def score(self, beam: Beam, length: int = 0) -> float:
        """The rank of `beam`, or what it would be with as many tokens as `length`."""
        return beam.logprob / max(1, length or len(beam.tokens)) ** self.length_penalty


class BeamLogprobs(NamedTuple):
    """Implements `TokenLogprobs`."""

    token_id: int
    logprob: float
    rank: int
    top: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Beam:
    """An output so far. `logprob`: of all its tokens together."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    logprob: float = 0.0

    def extended(self, token: TokenLogprobs) -> Beam:
        """The beam with one more token."""
        return Beam(
            (*self.tokens, token.token_id),
            (*self.logprobs, token),
            self.logprob + token.logprob,
        )


def beam_steps(
    prompt: Prompt, options: BeamOptions, *, keeps_logprobs: bool
) -> Generator[list[Prompt], list[ChoiceOutput], list[ChoiceOutput]]:
    """Searches for the outputs of one prompt, and returns them, the best one first: as many as
    `BeamOptions.width`, some of them twice if a grammar admits fewer.

    Yields the prompts of a step, and needs the output of each: one token, with the log
    probabilities that `BeamOptions.step_sampling` requests.
    """
    live, ended, num_cached = [Beam()], list[Beam](), 0
    for step in range(prompt.max_tokens):
        outputs = yield [_extended(prompt, beam) for beam in live]
        if step == 0:
            num_cached = outputs[0].num_cached_tokens
        candidates: list[Beam] = []
        for beam, output in zip(live, outputs, strict=True):
            for token in _alternatives(output, options.num_alternatives):
                ends = token.token_id in options.ends
                (ended if ends else candidates).append(beam.extended(token))
        live = heapq.nlargest(options.width, candidates, key=lambda beam: beam.logprob)
        ended = heapq.nlargest(options.width, ended, key=options.score)
        if not live or _is_settled(options, live, ended, prompt.max_tokens):
            break
    best = heapq.nlargest(options.width, [*ended, *live], key=options.score)
    best = list(itertools.islice(itertools.cycle(best), options.width))
    whole = {id(beam) for beam in ended}
    return [_output(beam, id(beam) in whole, num_cached, keeps_logprobs) for beam in best]


class BeamSearch:
    """Searches for the outputs of each prompt, and gives them at the end. Implements
    `OutputStream`."""

    engine = 0  # of several, each step is on the one that has its prompts in its cache
    num_dropped_tokens = 0  # the beams share what is computed once

    def __init__(
        self,
        submit: Submit,
        prompts: Sequence[Prompt],
        options: BeamOptions,
        *,
        keeps_logprobs: bool,
    ) -> None:
        """Begins at once. Belongs to the running event loop."""
        self._submit = submit
        self._options = options
        self._keeps_logprobs = keeps_logprobs
        self._outputs: list[ChoiceOutput] = []
        self._on_news: Callable[[], None] | None = None
        self.failure: EngineError | None = None
        self._num_to_submit = len(prompts)
        self._submitted = asyncio.Event()
        self._task = asyncio.create_task(self._run(prompts))

    async def wait_submitted(self) -> None:
        """Returns once the engine has taken the first step of each prompt. Cancelled, it closes.

        Raises:
            EngineError: it refuses one; the search has ended.
        """
        try:
            await self._submitted.wait()
        except asyncio.CancelledError:
            self.close()
            raise
        if self.failure is not None:
            raise self.failure

    @property
    def exhausted(self) -> bool:
        """See `OutputStream`."""
        return self._task.done() and not self._outputs

    def listen(self, on_news: Callable[[], None]) -> None:
        """See `OutputStream`."""
        self._on_news = on_news

    def take(self) -> list[ChoiceOutput]:
        """See `OutputStream`."""
        taken, self._outputs = self._outputs, []
        return taken

    def stop(self, index: int) -> None:
        """See `OutputStream`."""

    def close(self) -> None:
        """See `OutputStream`."""
        self._task.cancel()
        self._on_news = None

    async def _run(self, prompts: Sequence[Prompt]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                searches = [group.create_task(self._search(prompt)) for prompt in prompts]
            self._outputs = [output for search in searches for output in search.result()]
            for index, output in enumerate(self._outputs):
                output.index = index
        except* EngineError as errors:
            self.failure = _first(errors)
        except* Exception:
            _LOGGER.exception("beam search failed")
            self.failure = EngineError("INTERNAL", "Beam search failed; the log says why.")
        self._submitted.set()
        # Behind the task's end, so that `exhausted` is true.
        asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        if self._on_news is not None:
            self._on_news()

    async def _search(self, prompt: Prompt) -> list[ChoiceOutput]:
        steps = beam_steps(prompt, self._options, keeps_logprobs=self._keeps_logprobs)
        outputs: list[ChoiceOutput] | None = None
        while True:
            try:
                prompts = next(steps) if outputs is None else steps.send(outputs)
            except StopIteration as end:
                return end.value
            outputs = await self._next(prompts, is_first=outputs is None)

    async def _next(self, prompts: Sequence[Prompt], *, is_first: bool) -> list[ChoiceOutput]:
        """What follows each prompt of a step."""
        found: dict[int, ChoiceOutput] = {}
        with await self._submit(prompts) as stream:
            self._num_to_submit -= is_first
            if not self._num_to_submit:
                self._submitted.set()
            async for outputs in stream:
                for output in outputs:
                    if output.error is not None:
                        raise output.error
                    if output.finish_reason == "abort":
                        raise ended_by_operator()
                    found[output.index] = output
        return [found[index] for index in range(len(prompts))]


def _extended(prompt: Prompt, beam: Beam) -> Prompt:
    """The prompt of what may follow `beam`."""
    given = prompt.rendered
    more = np.asarray(beam.tokens, given.token_ids.dtype)
    rendered = structs.replace(given, token_ids=np.concatenate([given.token_ids, more]))
    return Prompt(rendered, 1, num_written=len(beam.tokens))


def _is_settled(
    options: BeamOptions, live: Sequence[Beam], ended: Sequence[Beam], max_tokens: int
) -> bool:
    """True if no beam can become better than what has ended."""
    score = options.score
    if len(ended) < options.width:
        return False
    best = max(max(score(beam), score(beam, max_tokens)) for beam in live)
    return best <= min(map(score, ended))


def _output(beam: Beam, is_whole: bool, num_cached: int, keeps_logprobs: bool) -> ChoiceOutput:
    now = time.monotonic()
    return ChoiceOutput(
        0,
        list(beam.tokens),
        [now] * len(beam.tokens),
        list(beam.logprobs) if keeps_logprobs else None,
        finish_reason="stop" if is_whole else "length",
        num_cached_tokens=num_cached,
        created=now,
    )


def _alternatives(output: ChoiceOutput, count: int) -> list[BeamLogprobs]:
    assert output.logprobs is not None
    found = list(output.logprobs[0].top)[:count]
    top = [each for each in found if each[1] > -math.inf]  # others may not come
    return [BeamLogprobs(*each, rank, top) for rank, each in enumerate(top, 1)]


def _first(errors: ExceptionGroup[EngineError]) -> EngineError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
