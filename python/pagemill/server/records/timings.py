"""Where the time of a request went."""

from __future__ import annotations

import msgspec


class RequestTimings(msgspec.Struct):
    """`metrics` of a response, times in milliseconds; null if it is not known."""

    time_to_first_token_ms: float | None = None
    """From the request's submission to the engine."""
    generation_time_ms: float | None = None
    """First to last token."""
    queue_time_ms: float | None = None
    """Submission to the first step."""
    prefill_time_ms: float | None = None
    """First step to the first token, in the engine."""
    mean_itl_ms: float | None = None
    """From one token of a choice to the next."""
    tokens_per_second: float | None = None
    """Of all choices together, from the first token to the last."""
    draft_tokens: int | None = None
    """Draft tokens that were verified, of all choices; null if there were none."""
    accepted_draft_tokens: int | None = None
    """Those that were accepted."""
    draft_steps: int | None = None
    """Steps that verified them, of all choices."""
    mean_acceptance_length: float | None = None
    """Tokens of such a step: the accepted drafts and one more."""


def server_timing(timings: RequestTimings) -> str:
    """The value of the header Server-Timing, which browsers show."""
    parts = {
        "queue": timings.queue_time_ms,
        "prefill": timings.prefill_time_ms,
        "ttft": timings.time_to_first_token_ms,
        "generation": timings.generation_time_ms,
    }
    return ", ".join(f"{name};dur={value}" for name, value in parts.items() if value is not None)
