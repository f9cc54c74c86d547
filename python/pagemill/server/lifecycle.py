"""Where the server is between start and exit: loading, ready, draining.

Liveness and readiness are different questions. `/ready` is whether a new request would be served;
`/health` is whether restarting the process would help.
"""

from __future__ import annotations

import asyncio
import enum

from pagemill.server.errors import ApiError


class Phase(enum.Enum):
    """The server's phase; it only moves forward."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


class Lifecycle:
    """The phase, and how many API requests are being answered. Event loop only."""

    def __init__(self) -> None:
        self._phase = Phase.LOADING
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self._phase

    @property
    def active(self) -> int:
        """API requests whose response is not complete."""
        return self._active

    def became_ready(self) -> None:
        """The engine serves. Does nothing once draining has begun."""
        if self._phase is Phase.LOADING:
            self._phase = Phase.READY

    def begin_drain(self) -> None:
        """New requests are refused from now on; `/ready` says so."""
        self._phase = Phase.DRAINING

    def enter(self) -> None:
        """A request begins.

        Raises:
            ApiError: 503 unless ready; nothing was counted then.
        """
        self.check_ready()
        self._active += 1
        self._idle.clear()

    def check_ready(self) -> None:
        """Raises an ApiError (503) unless requests may begin."""
        if self._phase is Phase.LOADING:
            raise ApiError(503, "The model is still being loaded; try again in a few seconds.")
        if self._phase is Phase.DRAINING:
            raise ApiError(503, "The server is shutting down and takes no new requests.")

    def leave(self) -> None:
        """A request that entered is over."""
        self._active -= 1
        if self._active == 0:
            self._idle.set()

    def give_up(self) -> None:
        """Ends `wait_idle` although requests may be active."""
        self._idle.set()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Waits until no request is active; False when `timeout_s` passes first."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
