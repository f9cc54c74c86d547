"""The most likely of several choices of a prompt."""

from __future__ import annotations

import math
from collections.abc import Callable

from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream


class BestOf:
    """Of `best_of` choices of each prompt the `n` whose tokens are the most likely on average, once
    all have ended. Implements `OutputStream`."""

    num_dropped_tokens = 0

    def __init__(
        self, stream: RequestStream, n: int, best_of: int, *, keeps_logprobs: bool
    ) -> None:
        """`stream`: outputs with log probabilities, which the chosen ones keep or not."""
        self._stream = stream
        self._n = n
        self._best_of = best_of
        self._keeps_logprobs = keeps_logprobs

    @property
    def failure(self) -> EngineError | None:
        """See `OutputStream`."""
        return self._stream.failure

    @property
    def engine(self) -> int:
        """See `OutputStream`."""
        return self._stream.engine

    @property
    def exhausted(self) -> bool:
        """See `OutputStream`."""
        return self._stream.exhausted

    def listen(self, on_news: Callable[[], None]) -> None:
        """See `OutputStream`."""

        def on_outputs() -> None:
            if not self._stream.live_children:
                on_news()

        self._stream.listen(on_outputs)

    def take(self) -> list[ChoiceOutput]:
        """See `OutputStream`."""
        if self._stream.live_children:
            return []
        outputs = sorted(self._stream.take(), key=lambda output: output.index)
        if self._stream.failure is not None:
            return []
        chosen: list[ChoiceOutput] = []
        for begin in range(0, len(outputs), self._best_of):
            ranked = sorted(outputs[begin : begin + self._best_of], key=_likelihood, reverse=True)
            chosen += ranked[: self._n]
            self.num_dropped_tokens += sum(len(o.token_ids) for o in ranked[self._n :])
        for index, output in enumerate(chosen):
            output.index = index
            if not self._keeps_logprobs:
                output.logprobs = None
        return chosen

    def stop(self, index: int) -> None:
        """See `OutputStream`."""

    def close(self) -> None:
        """See `OutputStream`."""
        self._stream.close()


def _likelihood(output: ChoiceOutput) -> float:
    """The mean log probability of a choice's tokens; one that failed is the first to be seen."""
    if output.error is not None:
        return math.inf
    logprobs = output.logprobs or ()
    return sum(each.logprob for each in logprobs) / max(1, len(logprobs))
