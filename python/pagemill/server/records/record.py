"""What is known of a request at its end, by HTTP or gRPC: for metrics, the log and headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pagemill.server.records.timings import RequestTimings


@dataclass(slots=True)
class Work:
    """What the engine did for a request; `timings` are of the last generation."""

    model: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    finish_reasons: tuple[str, ...] = ()
    """Distinct ones of all choices, sorted."""
    timings: RequestTimings | None = None


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
    request_id: str = ""
    route: str = ""
    """The path of the endpoint, with its parameters' names; "" if there was none."""
    key_id: str = ""
    tenant: str = ""
    status: int = 0
    """0: no response was begun."""
    duration_s: float = 0.0
    """Until the end of the response."""
    work: Work = field(default_factory=Work)


OnEnd = Callable[[RequestRecord], None]
"""What gets the record of each request at its end."""
