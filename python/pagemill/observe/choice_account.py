"""What one choice of a request took, and its observations in the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagemill.observe.metrics import ChoiceTimes, RequestMetrics


class LastOutput(Protocol):
    """The part of `engine.outputs.ChoiceOutput` that is used here."""

    @property
    def finish_reason(self) -> str | None: ...
    @property
    def created(self) -> float: ...
    @property
    def num_evicted_tokens(self) -> int: ...
    @property
    def num_draft_steps(self) -> int: ...
    @property
    def num_draft_tokens(self) -> int: ...
    @property
    def num_accepted_draft_tokens(self) -> int: ...
    @property
    def queued_s(self) -> float: ...
    @property
    def prefill_s(self) -> float: ...
    @property
    def decode_s(self) -> float: ...


class ChoiceAccount:
    """Tokens of a choice and their times; `time.monotonic()`."""

    __slots__ = (
        "accepted_drafts",
        "draft_steps",
        "drafts",
        "evicted",
        "first",
        "last",
        "num_tokens",
        "reason",
        "times",
    )

    def __init__(self) -> None:
        self.first = 0.0
        """When the first token came."""
        self.last = 0.0
        """When the last token so far came."""
        self.num_tokens = 0
        self.evicted = 0
        """Prompt tokens whose KV had been cached and was evicted."""
        self.draft_steps = 0
        """Steps that verified drafts."""
        self.drafts = 0
        """Draft tokens that were verified, and below those that were accepted."""
        self.accepted_drafts = 0
        self.reason = ""
        """Why it ended; "" before."""
        self.times: ChoiceTimes | None = None
        """At its end, if it ended by itself."""

    def add_tokens(self, metrics: RequestMetrics, times: Sequence[float], arrived: float) -> None:
        """Observes tokens that came at `times`, of a request that arrived at `arrived`."""
        for at in times:
            if self.num_tokens:
                metrics.inter_token_latency.observe(at - self.last)
            else:
                metrics.time_to_first_token.observe(at - arrived)
                self.first = at
            self.last = at
            self.num_tokens += 1

    def end(self, metrics: RequestMetrics, output: LastOutput, reason: str, arrived: float) -> None:
        """Observes the end of the choice with `output`; `reason` is the client's."""
        by_engine = output.finish_reason is not None  # else by a stop string
        self.reason = reason
        self.evicted = output.num_evicted_tokens
        self.draft_steps = output.num_draft_steps
        self.drafts = output.num_draft_tokens
        self.accepted_drafts = output.num_accepted_draft_tokens
        self.times = ChoiceTimes(
            output.created - arrived,
            self.last - self.first,
            output.queued_s if by_engine else None,
            output.prefill_s if by_engine else None,
            output.decode_s if by_engine else None,
        )
        metrics.choice_ended(reason, self.num_tokens, self.times)
