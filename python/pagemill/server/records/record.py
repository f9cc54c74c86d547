"""What is known of an HTTP request at its end: for metrics, the log and headers."""

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
    charge: Callable[[int], None] | None = None
    """Takes tokens from those that the API key may use; None without such a limit."""

    def worked(self, work: Work) -> None:
        """The engine is done; in the background that may be after the response."""
        self.work = work
        if self.charge is not None:
            self.charge(work.prompt_tokens + work.completion_tokens)
