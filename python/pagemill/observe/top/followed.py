"""A server that is followed: what it did lately, and whether it is there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from pagemill.observe.top.figures import Figures, figures
from pagemill.observe.top.scrape import Scrape

_MAX_POINTS = 240
_MAX_SCRAPES = 600


class FollowedServer:
    """Reads a server's metrics again and again.

    `now` are the figures over the last `window_s` seconds, `points` those of each interval between
    two readings, for graphs. A server that is away keeps its points; one that was started again
    counts from there.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], str],
        window_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` returns the text of `/metrics`, or raises a ValueError with a sentence."""
        self.name = name
        self.now: Figures | None = None
        self.points: deque[Figures] = deque(maxlen=_MAX_POINTS)
        self.away = ""
        """Why the server could not be read last time; "" if it was."""
        self._read = read
        self._window_s = window_s
        self._clock = clock
        self._scrapes: deque[Scrape] = deque(maxlen=_MAX_SCRAPES)

    @property
    def state(self) -> str:
        """One word: that of the figures, "away", or "" before the first reading."""
        if self.away:
            return "away"
        return self.now.state if self.now is not None else ""

    def poll(self) -> None:
        """Reads once. Calls of several threads must not overlap."""
        try:
            self._take(Scrape(self._read(), self._clock()))
            self.away = ""
        except ValueError as error:
            self.away = str(error) or type(error).__name__
            self._scrapes.clear()  # rates are of a time in which the server was there

    def _take(self, scrape: Scrape) -> None:
        scrapes = self._scrapes
        if scrapes and not scrape.continues(scrapes[-1]):
            scrapes.clear()
        if scrapes:
            self.points.append(figures(scrapes[-1], scrape))
        scrapes.append(scrape)
        while len(scrapes) > 2 and scrapes[1].at <= scrape.at - self._window_s:
            scrapes.popleft()
        self.now = figures(scrapes[0], scrape)
