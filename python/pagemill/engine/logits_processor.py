"""What changes logits before tokens are chosen from them.

def no_repeats(prompt_token_ids, output_token_ids, logits):
    logits[output_token_ids] -= 2.0

llm.generate("The answer is", logits_processor=no_repeats)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class LogitsProcessor(Protocol):
    """1. The result depends on the arguments alone: rows behind drafts, and those of a request
       that was preempted, may be computed in another order, and twice.
    2. It is called on threads of the engine, several at once, while the step waits for it.
    3. An exception fails the request.
    """

    def __call__(
        self, prompt_token_ids: np.ndarray, output_token_ids: np.ndarray, logits: np.ndarray
    ) -> None:
        """Changes `logits` in place.

        Args:
            prompt_token_ids: int32 `[tokens]`, not to be changed.
            output_token_ids: int32 `[tokens]`, those in front of the one that is chosen next.
            logits: float32 `[vocab_size]` of the model; -inf excludes a token, and NaN or +inf fail
                the request. What a grammar excludes is excluded afterwards.

        All arrays are valid during the call.
        """
        ...


def in_turn(processors: Sequence[LogitsProcessor]) -> LogitsProcessor | None:
    """One that calls all of `processors`, each with what the one before it made; None of none."""
    if len(processors) < 2:
        return processors[0] if processors else None
    return _InTurn(processors)


class _InTurn:
    def __init__(self, processors: Sequence[LogitsProcessor]) -> None:
        self._processors = tuple(processors)

    def __call__(
        self, prompt_token_ids: np.ndarray, output_token_ids: np.ndarray, logits: np.ndarray
    ) -> None:
        """See `LogitsProcessor`."""
        for processor in self._processors:
            processor(prompt_token_ids, output_token_ids, logits)
