"""Turns one choice's token ids into text, with stop strings: the same for every kind of response.

The detokenizer and the stop string filter are handed in (they live in `render`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pagemill.engine.outputs import ChoiceOutput, TokenLogprobs


class Detokenizer(Protocol):
    """Token ids in, complete characters out."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class StopFilter(Protocol):
    """Text in, text that surely precedes any stop string out."""

    def push(self, text: str) -> tuple[str, str | None]: ...

    def flush(self) -> str: ...


@dataclass(slots=True)
class ChoiceDelta:
    """What a choice has to say since its last delta.

    `token_ids` counts every generated token, the stopping one included; `text` leaves it out unless
    asked for. `stop_reason` is the stop string or the client's stop token that ended the choice.
    `prompt_logprobs[i]` belongs to prompt token `i + 1`.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None


class ChoiceAssembler:
    """Follows one choice from its first token to its finish."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop_filter: StopFilter | None,
        *,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = detokenizer
        self._stop_filter = stop_filter
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self.finished = False

    def push(self, output: ChoiceOutput) -> ChoiceDelta:
        """The delta that `output` makes.

        When a stop string matches, the delta ends with the token that completed it and has a
        finish reason although `output` may have none: the caller then stops the engine's side.
        """
        delta = ChoiceDelta(output.index, "", output.token_ids, output.logprobs)
        # The token that stopped the choice is not text.
        silent = 1 if output.finish_reason == "stop" and not self._include_stop else 0
        spoken = output.token_ids[: len(output.token_ids) - silent] if silent else output.token_ids
        if self._stop_filter is None:
            self._num_tokens += len(spoken)
            delta.text = self._detokenizer.push(spoken)
        elif self._push_each(delta, spoken, self._stop_filter):
            return delta
        if output.finish_reason is not None:
            self._finish(delta, output)
        return delta

    def _push_each(self, delta: ChoiceDelta, spoken: list[int], stop_filter: StopFilter) -> bool:
        # One token at a time, so that where a choice ends does not depend on how outputs happened
        # to be merged.
        parts: list[str] = []
        for at, token in enumerate(spoken):
            self._num_tokens += 1
            text = self._detokenizer.push([token])
            if self._num_tokens <= self._min_tokens:
                parts.append(text)
                continue
            emitted, matched = stop_filter.push(text)
            parts.append(emitted)
            if matched is not None:
                delta.token_ids = delta.token_ids[: at + 1]
                if delta.logprobs is not None:
                    delta.logprobs = delta.logprobs[: at + 1]
                delta.text = "".join(parts)
                delta.finish_reason, delta.stop_reason = "stop", matched
                self.finished = True
                return True
        delta.text = "".join(parts)
        return False

    def _finish(self, delta: ChoiceDelta, output: ChoiceOutput) -> None:
        self.finished = True
        rest = self._detokenizer.flush()
        delta.finish_reason = output.finish_reason
        delta.stop_reason = output.stop_token_id
        if self._stop_filter is None:
            delta.text += rest
            return
        emitted, matched = self._stop_filter.push(rest) if rest else ("", None)
        delta.text += emitted
        if matched is not None:
            delta.finish_reason, delta.stop_reason = "stop", matched
        else:
            delta.text += self._stop_filter.flush()
