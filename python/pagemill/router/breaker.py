"""Whether a server may get requests, and when to look again."""

from __future__ import annotations

MAX_DOUBLINGS = 5


class Breaker:
    """A server gets requests after a probe succeeded, until a probe or a request fails.

    The next probe is due after `interval_s`. A server whose probes succeed while its requests fail
    is probed after twice that, four times, ... at most 32 times; a request that it serves ends
    that. Times are the caller's, in seconds of any clock. Starts without requests, and a probe due.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._request_failures = 0  # since a request was served
        self.closed = False
        """True: the server gets requests."""
        self.probe_at = -float("inf")
        """When the next probe is due."""

    def probed(self, now: float, succeeded: bool) -> None:
        """The outcome of a probe."""
        self.closed = succeeded
        self.probe_at = now + self._interval_s

    def request_failed(self, now: float) -> None:
        """The server did not answer a request, or broke off. Of those that fail together, only the
        first counts."""
        if not self.closed:
            return
        self.closed = False
        self.probe_at = now + self._interval_s * 2 ** min(self._request_failures, MAX_DOUBLINGS)
        self._request_failures += 1

    def request_served(self) -> None:
        """A response was complete."""
        self._request_failures = 0
