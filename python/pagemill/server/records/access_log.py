"""A line for each request in the log (`--access-log`)."""

from __future__ import annotations

import logging
from urllib.parse import quote

from pagemill.server.records.record import RequestRecord, is_probe

_LOGGER = logging.getLogger("pagemill.access")
_MAX_PATH_CHARS = 200


def log_request(record: RequestRecord) -> None:
    """Logs a request that is over, unless it is a probe or a scrape that succeeded."""
    if is_probe(record):
        return
    path = quote(record.path[:_MAX_PATH_CHARS])
    _LOGGER.info(
        "%s %s %d", quote(record.method), path, record.status, extra={"fields": fields_of(record)}
    )


def fields_of(record: RequestRecord) -> dict[str, object]:
    """What is known, by name; durations are in milliseconds."""
    work, timings = record.work, record.work.timings
    found: dict[str, object] = {
        "method": record.method,
        "path": record.path[:_MAX_PATH_CHARS],
        "status": record.status,
        "duration_ms": round(1000 * record.duration_s, 3),
        "request_id": record.request_id,
        "client": record.client,
        "key": record.key_id,
        "tenant": record.tenant,
        "model": work.model,
        "finish_reason": ",".join(work.finish_reasons),
    }
    if work.model:
        found["prompt_tokens"] = work.prompt_tokens
        found["cached_tokens"] = work.cached_tokens
        found["completion_tokens"] = work.completion_tokens
        found["evicted_tokens"] = work.evicted_tokens or None
    if timings is not None:
        found["queue_time_ms"] = timings.queue_time_ms
        found["prefill_time_ms"] = timings.prefill_time_ms
        found["time_to_first_token_ms"] = timings.time_to_first_token_ms
        found["generation_time_ms"] = timings.generation_time_ms
        found["mean_itl_ms"] = timings.mean_itl_ms
        found["draft_tokens"] = timings.draft_tokens
        found["draft_steps"] = timings.draft_steps
        found["accepted_draft_tokens"] = timings.accepted_draft_tokens
    return {name: value for name, value in found.items() if value not in ("", None)}
