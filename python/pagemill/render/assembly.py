"""Token ids of one choice to events, with stop strings: the same for every kind of response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from pagemill.render.events import NO_TOKEN, Event, Piece, Text
from pagemill.render.output_machine import Formats
from pagemill.render.output_parser import OutputParser
from pagemill.render.stop_strings import StopPieces, StopStringFilter


class PieceSource(Protocol):
    """The part of `Detokenizer` that is used here."""

    def piece(self, token_id: int) -> Piece: ...

    def flush(self) -> str: ...


class TokenOutput(Protocol):
    """The part of `engine.outputs.ChoiceOutput` that is used here."""

    @property
    def index(self) -> int: ...
    @property
    def token_ids(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[Any] | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def stop_token_id(self) -> int | None: ...


class ChoiceDelta(msgspec.Struct):
    """What a choice adds since its last delta.

    `token_ids` counts every generated token, the stopping one included; `events` leave it out
    unless the request includes it. `stop_reason` is the stop string or the client's stop token that
    ended the choice. `logprobs` are the engine's, and so are the `routed_experts` of a choice that
    has ended; `prompt_logprobs[i]` belongs to prompt token `i + 1`.
    """

    index: int
    events: list[Event]
    token_ids: list[int]
    logprobs: list[Any] | None
    offsets: list[int]
    """For each token, how many characters the tokens before it make. A character that several
    tokens make together counts from the last of them on."""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: list[Any] | None = None
    answer_logprobs: list[Any] | None = None
    """Those of `logprobs` whose tokens are text of the answer: no reasoning, calls or markers."""
    routed_experts: npt.NDArray[np.uint16] | None = None

    @property
    def text(self) -> str:
        """The delta's part of the answer, without reasoning and calls."""
        events = self.events
        if len(events) == 1 and type(events[0]) is Text:
            return events[0].text
        return "".join([event.text for event in events if type(event) is Text])

    def extend(self, later: ChoiceDelta) -> None:
        """Appends the next delta of the same choice."""
        self.events = self.events + later.events
        self.token_ids = self.token_ids + later.token_ids
        if later.logprobs is not None:
            self.logprobs = (self.logprobs or []) + later.logprobs
        if later.answer_logprobs is not None:
            self.answer_logprobs = (self.answer_logprobs or []) + later.answer_logprobs
        self.finish_reason, self.stop_reason = later.finish_reason, later.stop_reason
        self.offsets = self.offsets + later.offsets
        self.routed_experts = later.routed_experts


class ChoiceAssembler:
    """Follows one choice from its first token to its finish."""

    def __init__(
        self,
        detokenizer: PieceSource,
        parser: OutputParser | None = None,
        stop: Sequence[str] = (),
        *,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        """Begins a choice.

        Args:
          detokenizer: for what follows the prompt.
          parser: None: all output is text.
          stop: strings that end the choice, matched in its whole text, markers included.
          include_stop: the string or token that ends the choice is part of its text.
          min_tokens: stop strings count after so many tokens.
        """
        self._detokenizer = detokenizer
        self._parser = OutputParser(Formats()) if parser is None else parser
        self._stop: StopPieces | None = None
        if stop:
            matcher = StopStringFilter(stop, include_stop)
            self._stop = StopPieces(matcher, self._parser.marker_ids)
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._num_chars = 0
        self._unsaid: list[Any] = []
        """Log probabilities of tokens that are text of the answer, or the beginning of a marker."""
        self.finished = False
        self.num_reasoning_tokens = 0
        """Tokens of the model's reasoning so far, with the marker that ends it."""

    def push(self, output: TokenOutput) -> ChoiceDelta:
        """The delta that `output` results in.

        When a stop string matches, or the last call that is allowed ends, the delta ends with the
        token that completed it and has a finish reason although `output` may have none: the caller
        then stops the engine's side.
        """
        token_ids = output.token_ids
        delta = ChoiceDelta(output.index, [], token_ids, output.logprobs, [])
        if output.logprobs is not None:
            delta.answer_logprobs = []
        silent = output.finish_reason == "stop" and not self._include_stop
        # One token at a time, so that where a choice ends does not depend on how outputs happened
        # to be merged. The token that stopped the choice is not text.
        for token in token_ids[:-1] if silent else token_ids:
            self._push_token(token, delta)
            if self.finished:
                return delta
        if output.finish_reason is not None:
            if silent and token_ids:
                delta.offsets.append(self._num_chars)
            self._finish(delta, output)
        return delta

    def _push_token(self, token: int, delta: ChoiceDelta) -> None:
        """Appends a token, which may finish the choice."""
        parser, events = self._parser, delta.events
        delta.offsets.append(self._num_chars)
        piece = self._detokenizer.piece(token)
        self._num_chars += len(piece.text)
        if parser.is_reasoning:
            self.num_reasoning_tokens += 1
        if delta.logprobs is not None and parser.is_answer:
            self._unsaid.append(delta.logprobs[len(delta.offsets) - 1])
        said = len(events)
        if self._stop is not None:
            matched = self._push_filtered(piece, self._stop, events)
            if matched is not None:
                parser.finish(events)
                self._stop_at(delta, matched)
                return
        else:
            parser.push(piece, events)
        if self._unsaid:
            self._say_logprobs(delta, events[said:])
        if parser.is_complete:
            self._stop_at(delta, None)

    def _say_logprobs(self, delta: ChoiceDelta, events: Sequence[Event]) -> None:
        """Gives the log probabilities of tokens that have become text of the answer by `events`,
        and forgets those of tokens that have become something else."""
        assert delta.answer_logprobs is not None
        if any(isinstance(event, Text) for event in events):
            delta.answer_logprobs += self._unsaid
            self._unsaid = []
        elif not self._parser.is_answer:
            self._unsaid = []

    def _push_filtered(self, piece: Piece, stop: StopPieces, events: list[Event]) -> str | None:
        self._num_tokens += 1
        if self._num_tokens <= self._min_tokens:
            self._parser.push(piece, events)
            return None
        pieces, matched = stop.push(piece)
        self._parse(pieces, events)
        return matched

    def _parse(self, pieces: Iterable[Piece], events: list[Event]) -> None:
        for piece in pieces:
            self._parser.push(piece, events)

    def _stop_at(self, delta: ChoiceDelta, matched: str | None) -> None:
        count = len(delta.offsets)
        delta.token_ids = delta.token_ids[:count]
        if delta.logprobs is not None:
            delta.logprobs = delta.logprobs[:count]
        delta.finish_reason, delta.stop_reason = "stop", matched
        self.finished = True

    def _finish(self, delta: ChoiceDelta, output: TokenOutput) -> None:
        self.finished = True
        rest: Sequence[Piece] = (Piece(self._detokenizer.flush(), NO_TOKEN, False),)
        delta.finish_reason = output.finish_reason
        delta.stop_reason = output.stop_token_id
        if output.finish_reason == "repetition":
            delta.stop_reason = "repetition_detected"
        if self._stop is not None:
            rest, matched = self._stop.push(rest[0])
            if matched is not None:
                delta.finish_reason, delta.stop_reason = "stop", matched
            else:
                rest = [*rest, *self._stop.flush()]
        said = len(delta.events)
        self._parse(rest, delta.events)
        self._parser.finish(delta.events)
        if self._unsaid:
            self._say_logprobs(delta, delta.events[said:])
