"""When refused clients should come back: not all at once.

The engine knows when there will be room for one more request, and would send all clients that it
refuses to that moment. Each of them gets a turn of its own here, as if it stood in a queue that
moves at the speed at which requests have ended lately. 2,000 clients that come back every second
keep a server busy with refusing; in turn, about as many come back as can be served.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pagemill.server.errors import ApiError

_LATELY_S = 10.0
LONGEST_S = 60
"""Clients that were refused may never come back: a turn is not later than this."""


class ReturnTimes:
    """Turns of refused clients. Event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._refused_at = -math.inf
        self._since = 0.0  # refusals have come since then
        self._ended = 0.0  # requests since then; each counts less and less
        self._ended_at = 0.0
        self._next_turn = 0.0

    def ended(self) -> None:
        """A request was served."""
        now = self._clock()
        self._ended = 1.0 + self._ended * math.exp((self._ended_at - now) / _LATELY_S)
        self._ended_at = now

    def schedule(self, error: ApiError) -> None:
        """If `error` is that the engine's queue is full, gives the client a turn."""
        if error.status == 429 and error.is_by_engine:
            error.retry_after_s = self.refused(error.retry_after_s)

    def refused(self, retry_after_s: int) -> int:
        """Seconds until a client should come back that the engine refused for `retry_after_s`."""
        now = self._clock()
        if now - self._refused_at > _LATELY_S:  # it was not full, so its speed is not known
            self._since = self._ended_at = self._next_turn = now
            self._ended = 0.0
        self._refused_at = now
        turn = max(self._next_turn, now + retry_after_s)
        rate = self._rate(now)
        if rate == 0:
            return retry_after_s
        self._next_turn = min(turn + 1 / rate, now + LONGEST_S)
        return max(retry_after_s, min(math.ceil(turn - now), LONGEST_S))

    def _rate(self, now: float) -> float:
        """Requests that ended in a second, lately."""
        ended = self._ended * math.exp((self._ended_at - now) / _LATELY_S)
        seconds = -math.expm1((self._since - now) / _LATELY_S) * _LATELY_S
        return ended / seconds if seconds > 0 else 0.0
