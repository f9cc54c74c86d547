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
    offsets: list[int]
    """For each token, how many characters the tokens before it make. A character that several
    tokens make together counts from the last of them on."""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None

    def extend(self, later: ChoiceDelta) -> None:
        """Appends the next delta of the same choice."""
        self.text += later.text
        self.token_ids = self.token_ids + later.token_ids
        if later.logprobs is not None:
            self.logprobs = (self.logprobs or []) + later.logprobs
        self.finish_reason, self.stop_reason = later.finish_reason, later.stop_reason
        self.offsets = self.offsets + later.offsets


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
        self._num_chars = 0
        self.finished = False

    def push(self, output: ChoiceOutput) -> ChoiceDelta:
        """The delta that `output` makes.

        When a stop string matches, the delta ends with the token that completed it and has a
        finish reason although `output` may have none: the caller then stops the engine's side.
        """
        delta = ChoiceDelta(output.index, "", output.token_ids, output.logprobs, [])
        # The token that stopped the choice is not text.
        silent = output.finish_reason == "stop" and not self._include_stop
        num_spoken = len(output.token_ids) - silent
        # One token at a time, so that where a choice ends does not depend on how outputs happened
        # to be merged.
        for at, token in enumerate(output.token_ids):
            delta.offsets.append(self._num_chars)
            if at == num_spoken:
                break
            text, matched = self._detokenizer.push((token,)), None
            self._num_chars += len(text)
            self._num_tokens += 1
            if self._stop_filter is not None and self._num_tokens > self._min_tokens:
                text, matched = self._stop_filter.push(text)
            delta.text += text
            if matched is not None:
                delta.token_ids = delta.token_ids[: at + 1]
                if delta.logprobs is not None:
                    delta.logprobs = delta.logprobs[: at + 1]
                delta.finish_reason, delta.stop_reason = "stop", matched
                self.finished = True
                return delta
        if output.finish_reason is not None:
            self._finish(delta, output)
        return delta

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
