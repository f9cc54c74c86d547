"""What a generation took, for metrics, for its response and for the log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.observe.choice_account import ChoiceAccount
from pagemill.observe.metrics import RequestMetrics, TenantUsage
from pagemill.server.access.caller import Caller
from pagemill.server.protocol.usage import Usage
from pagemill.server.records.record import Work
from pagemill.server.records.timings import RequestTimings


def timings(choices: Sequence[ChoiceAccount], arrived: float) -> RequestTimings:
    """The times of a request that arrived at `arrived`, over all its choices."""
    begun = [choice for choice in choices if choice.num_tokens]
    if not begun:
        return RequestTimings()
    first, last = min(choice.first for choice in begun), max(choice.last for choice in begun)
    found = RequestTimings(_ms(first - arrived), _ms(last - first))
    gaps = sum(choice.num_tokens - 1 for choice in begun)
    if gaps:
        found.mean_itl_ms = _ms(sum(choice.last - choice.first for choice in begun) / gaps)
    if last > first:
        found.tokens_per_second = round(gaps / (last - first), 3)
    if drafts := sum(choice.drafts for choice in begun):
        found.draft_tokens = drafts
        accepted = sum(choice.accepted_drafts for choice in begun)
        steps = sum(choice.draft_steps for choice in begun)
        found.accepted_draft_tokens, found.draft_steps = accepted, steps
        found.mean_acceptance_length = round(1 + accepted / steps, 3)
    for choice in begun:
        times = choice.times
        if times is not None and times.queued is not None and times.prefill is not None:
            found.queue_time_ms, found.prefill_time_ms = _ms(times.queued), _ms(times.prefill)
            break
    return found


def close_account(
    metrics: RequestMetrics,
    caller: Caller,
    choices: Sequence[ChoiceAccount],
    prompts: Sequence[np.ndarray],
    cached_tokens: Sequence[int],
    usage: Usage,
    found: RequestTimings,
) -> None:
    """Counts a request that is over; `cached_tokens` are of each prompt."""
    n = len(choices) // len(prompts)
    for index, prompt in enumerate(prompts):
        longest = max(choice.num_tokens for choice in choices[n * index : n * (index + 1)])
        if longest:
            metrics.prompt_ended(longest, len(prompt) - cached_tokens[index])
    tenant_usage = TenantUsage(
        usage.prompt_tokens,
        usage.completion_tokens,
        _s(found.time_to_first_token_ms),
        _s(found.queue_time_ms),
    )
    metrics.tenant_served(caller.tenant, caller.key_id, tenant_usage)
    if caller.record is not None:
        before = caller.record.work  # of a request with several generations
        reasons = {choice.reason for choice in choices if choice.reason}
        caller.record.work = Work(
            metrics.model_name,
            before.prompt_tokens + usage.prompt_tokens,
            before.cached_tokens + sum(cached_tokens),
            before.completion_tokens + usage.completion_tokens,
            # Siblings find what the first choice has computed.
            before.evicted_tokens + sum(choice.evicted for choice in choices[::n]),
            tuple(sorted({*before.finish_reasons, *reasons})),
            found,
        )


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _s(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
