"""One submitted request as its response reads it: events, stop strings, usage and metrics.

    generation.listen(on_news)          # called as outputs come; must not raise
    for delta in generation.take(1):    # in `on_news`
        ...
    if generation.ended: ...

Streamed responses and others read the same `Generation`; they differ in when they write. Nothing
waits here: between the engine's output and the response's bytes there are only calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from pagemill.engine.output_stream import OutputStream
from pagemill.engine.outputs import ChoiceOutput
from pagemill.engine.sampling import SamplingParams
from pagemill.observe.choice_account import ChoiceAccount
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.accounting import close_account, timings
from pagemill.server.errors import ApiError, from_engine
from pagemill.server.limits.limiter import Charge
from pagemill.server.protocol.usage import PromptTokensDetails, Usage
from pagemill.server.records.content_log import OutputLog
from pagemill.server.records.timings import RequestTimings


class Generation:
    """One submitted request: deltas of its choices, and its usage so far.

    `close` aborts whatever has not finished; it is idempotent, and must be called however the
    request ends.
    """

    def __init__(
        self,
        stream: OutputStream,
        assemblers: Sequence[ChoiceAssembler],
        metrics: RequestMetrics,
        prompts: Sequence[np.ndarray],
        sampling: SamplingParams,
        caller: Caller = ANONYMOUS,
        charge: Charge | None = None,
        adapter: str = "",
    ) -> None:
        """`adapter` is the name of that with which it is computed."""
        self._stream = stream
        self._adapter = metrics.adapters.request(adapter)
        self._metrics = metrics
        self._caller = caller
        self._charge = charge
        self._closed = False
        self._arrived = time.monotonic()
        self.prompts = prompts
        self.sampling = sampling
        self._prompt_tokens = sum(len(p) for p in prompts)
        self._completion_tokens = 0
        self._cached_tokens = [0] * len(prompts)
        self._choices = [_Choice(assembler) for assembler in assemblers]
        self.failure: ApiError | None = None
        """Why the request ended early; what was generated before it is in the deltas."""
        self.kv_transfer_params: dict[str, str] = {}
        """Those of the first choice that ended with some."""
        self.weight_versions: dict[int, Sequence[tuple[int, str]]] = {}
        """Of choices that have ended; see `ChoiceOutput`."""
        self.outputs: OutputLog | None = None
        """What logs the outputs; None: they are not logged."""
        self.on_close: Callable[[], None] | None = None
        """Called when the request has ended: what its prompts took is not used any more."""

    def prompt_number(self, index: int) -> int:
        """Which of the prompts choice `index` continues."""
        return index // self.sampling.n

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self._choices)

    @property
    def usage(self) -> Usage:
        """Tokens so far; a prompt counts once, however many choices it has."""
        return self._usage(self._completion_tokens + self._stream.num_dropped_tokens)

    @property
    def prompt_usage(self) -> Usage:
        """The usage before the first generated token."""
        return self._usage(0)

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the generated tokens are reasoning."""
        return sum(choice.assembler.num_reasoning_tokens for choice in self._choices)

    @property
    def timings(self) -> RequestTimings:
        """Where the time went so far."""
        return timings(self._choices, self._arrived)

    @property
    def ended(self) -> bool:
        """True once `take` has returned the last delta."""
        return self.failure is not None or self._stream.exhausted

    def listen(self, on_news: Callable[[], None]) -> None:
        """Calls `on_news` when `take` has something or the generation has ended."""
        self._stream.listen(on_news)

    def take(self, portion: int) -> Iterable[ChoiceDelta]:
        """The deltas since the last call, to be read before the next one.

        Args:
            portion: tokens of one delta. A choice's first token and its end do not wait for others.
                0: as many tokens as there are, such as for a reader that is behind.
        """
        outputs = self._stream.take()
        if portion == 1 and len(outputs) == 1 and self._stream.failure is None:
            output = outputs[0]
            choice = self._choices[output.index]
            if len(output.token_ids) == 1 and choice.held is None and output.error is None:
                return (self._take(choice, output),)
        return self._batch(outputs, portion)

    def close(self) -> None:
        """Aborts what has not finished."""
        for choice in self._choices:
            if not choice.assembler.finished:
                choice.assembler.finished = True
                choice.reason = choice.reason or ("abort" if self.failure is None else "error")
                self._metrics.finished("abort")
        self._stream.close()
        self._adapter.ended()
        if self._closed:
            return
        self._closed = True
        if self.on_close is not None:
            self.on_close()
        if self.outputs is not None:
            self.outputs.close("abort" if self.failure is None else "error")
        if self._charge is not None:
            self._charge.settle(self.usage.total_tokens)
        close_account(
            self._metrics,
            self._caller,
            self._choices,
            self.prompts,
            self._cached_tokens,
            self.usage,
            self.timings,
        )

    def _usage(self, completion_tokens: int) -> Usage:
        return Usage(
            self._prompt_tokens,
            completion_tokens,
            self._prompt_tokens + completion_tokens,
            PromptTokensDetails(sum(self._cached_tokens)),
        )

    def _batch(self, outputs: Sequence[ChoiceOutput], portion: int) -> Iterator[ChoiceDelta]:
        for output in outputs:
            choice = self._choices[output.index]
            for part in output.one_by_one() if portion else (output,):
                delta = choice.joined(self._take(choice, part), portion)
                if delta is not None:
                    yield delta
                if choice.assembler.finished:
                    break
        yield from self._failed(outputs)

    def _failed(self, outputs: Sequence[ChoiceOutput]) -> Iterator[ChoiceDelta]:
        """Notes a failure among `outputs`; yields what waited to fill a portion."""
        error = self._stream.failure
        for output in outputs:
            choice = self._choices[output.index]
            # Tokens merged with the failure may hold a stop string: then the choice is complete.
            if error is None and output.error is not None and not choice.assembler.finished:
                choice.assembler.finished = True
                choice.reason = "error"
                error = output.error
        if error is None or self.failure is not None:
            return
        self._metrics.finished("error")
        self.failure = from_engine(error)
        yield from [choice.held for choice in self._choices if choice.held is not None]

    def _take(self, choice: _Choice, output: ChoiceOutput) -> ChoiceDelta:
        if output.error is not None:  # no reason that a client could read: it is a failure
            output = msgspec.structs.replace(output, finish_reason=None)
        self.kv_transfer_params = self.kv_transfer_params or output.kv_transfer_params
        if output.weight_versions:
            self.weight_versions[output.index] = output.weight_versions
        delta = choice.assembler.push(output)
        delta.prompt_logprobs = output.prompt_logprobs
        delta.routed_experts = output.routed_experts
        self._completion_tokens += len(delta.token_ids)
        if choice.num_tokens == 0:
            self._adapter.started()
            prompt, sample = divmod(output.index, self.sampling.n)
            if sample == 0:  # its siblings find what it has computed
                self._cached_tokens[prompt] = output.num_cached_tokens
        times = output.token_times
        if len(times) != len(delta.token_ids):
            times = times[: len(delta.token_ids)]
        choice.add_tokens(self._metrics, times, self._arrived)
        if self.outputs is not None:
            self.outputs.add(output.index, delta.token_ids, delta.finish_reason)
        if delta.finish_reason is not None:
            choice.end(self._metrics, output, delta.finish_reason, self._arrived)
        if delta.finish_reason is not None and output.finish_reason is None:
            self._stream.stop(output.index)  # a stop string, of which the engine knows nothing
        return delta


class _Choice(ChoiceAccount):
    """A choice's assembler and account, and what waits to fill a portion."""

    __slots__ = ("assembler", "begun", "held")

    def __init__(self, assembler: ChoiceAssembler) -> None:
        super().__init__()
        self.assembler = assembler
        self.begun = False
        self.held: ChoiceDelta | None = None

    def joined(self, delta: ChoiceDelta, portion: int) -> ChoiceDelta | None:
        """What was held and `delta`; None, and held, if it is less than a portion."""
        if portion == 1 and self.held is None:
            return delta
        if self.held is not None:
            self.held.extend(delta)
            delta, self.held = self.held, None
        if self.begun and not delta.finish_reason and len(delta.token_ids) < portion:
            self.held = delta
            return None
        self.begun = self.begun or bool(delta.token_ids)
        return delta
