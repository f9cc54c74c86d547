"""What is known of a request at its end: for metrics, traces, the log and headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pagemill.server.records.timings import RequestTimings


@dataclass(slots=True)
class Work:
    """What the engine did for a request; `timings` are of the last generation."""

    model: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    evicted_tokens: int = 0
    """Prompt tokens that were not cached any more: their KV had been evicted."""
    finish_reasons: tuple[str, ...] = ()
    """Distinct ones of all choices, sorted."""
    timings: RequestTimings | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """What the engine was asked to generate, and when."""

    at: float
    """`time.monotonic()`."""
    n: int
    """Choices of each prompt."""
    max_tokens: int
    """Of a choice."""
    temperature: float | None
    top_p: float | None


@dataclass(slots=True)
class RequestRecord:
    """One request; the layers and the handler fill it in.

    It never holds a prompt, an output or a key.
    """

    method: str
    path: str
    """As the client sent it, without the query."""
    client: str = ""
    """Address of the peer."""
    started: float = 0.0
    """`time.monotonic()`."""
    trace_context: Mapping[str, str] = field(default_factory=dict[str, str])
    """The client's headers `traceparent` and `tracestate`, those that it sent."""
    request_id: str = ""
    route: str = ""
    """The path of the endpoint, with its parameters' names; "" if there was none."""
    key_id: str = ""
    tenant: str = ""
    status: int = 0
    """0: no response was begun."""
    duration_s: float = 0.0
    """Until the end of the response."""
    submission: Submission | None = None
    """None: nothing was generated."""
    work: Work = field(default_factory=Work)


OnEnd = Callable[[RequestRecord], None]
"""What gets the record of each request at its end."""
_PROBES = frozenset({"/health", "/metrics", "/ping", "/ready"})


def is_probe(record: RequestRecord) -> bool:
    """Whether the request is a probe or a scrape that succeeded, of which there are many."""
    return record.status < 400 and record.path in _PROBES
