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
        token_ids = output.token_ids
        offsets: list[int] = []
        delta = ChoiceDelta(output.index, "", token_ids, output.logprobs, offsets)
        silent = output.finish_reason == "stop" and not self._include_stop
        # One token at a time, so that where a choice ends does not depend on how outputs happened
        # to be merged. The token that stopped the choice is not text.
        for token in token_ids[:-1] if silent else token_ids:
            offsets.append(self._num_chars)
            text = self._detokenizer.push((token,))
            self._num_chars += len(text)
            if self._stop_filter is not None:
                text, matched = self._filtered(text, self._stop_filter)
                if matched is not None:
                    delta.text += text
                    self._stop_at(delta, matched)
                    return delta
            delta.text += text
        if output.finish_reason is not None:
            if silent and token_ids:
                offsets.append(self._num_chars)
            self._finish(delta, output)
        return delta

    def _filtered(self, text: str, stop_filter: StopFilter) -> tuple[str, str | None]:
        self._num_tokens += 1
        return (text, None) if self._num_tokens <= self._min_tokens else stop_filter.push(text)

    def _stop_at(self, delta: ChoiceDelta, matched: str) -> None:
        count = len(delta.offsets)
        delta.token_ids = delta.token_ids[:count]
        if delta.logprobs is not None:
            delta.logprobs = delta.logprobs[:count]
        delta.finish_reason, delta.stop_reason = "stop", matched
        self.finished = True

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
