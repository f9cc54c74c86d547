"""A model of the file: its state, its process if it has one, and the requests that use it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from pagemill.config.serve_models import HostedModelConfig
from pagemill.model_host.process import ModelProcess
from pagemill.model_host.reports import Ready
from pagemill.router.upstream import Upstream
from pagemill.server.errors import ApiError

_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 60.0
_STABLE_AFTER_S = 60.0


class ModelState(StrEnum):
    """Where a model is."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"
    FAILED = "failed"
    """It has no process: it could not be started, or ended by itself."""


@dataclass(slots=True)
class ModelCounts:
    """Of one model."""

    starts: int = 0
    """Times that it was loaded."""
    start_seconds: float = 0.0
    """Of all of these, from the start of the process until it served."""
    failures: int = 0
    """Starts that failed, and processes that ended by themselves."""
    stops: Counter[str] = field(default_factory=Counter[str])
    """By what they were for: "idle", "memory", "operator"."""
    requests: Counter[str] = field(default_factory=Counter[str])
    """By how they ended: "served", "failed", "broken", "aborted", "refused" (it was not loaded)."""


@dataclass(eq=False, slots=True)
class HostedModel:
    """One model. Event loop only."""

    config: HostedModelConfig
    socket: str
    """Path of the Unix socket that its process listens on."""
    upstream: Upstream
    state: ModelState = ModelState.UNLOADED
    ready: Ready | None = None
    """As of the last start that succeeded."""
    users: int = 0
    """Requests that wait for it or run."""
    last_used: float = 0.0
    """When `users` became 0, by the loop's clock."""
    reserved_bytes: int = 0
    """Of the host's memory, for its process."""
    reason: str = ""
    """Why it failed."""
    retry_at: float = 0.0
    """When it may be started again after a failure, by the loop's clock."""
    waits_for: str = ""
    """What keeps it from being loaded, while it is not."""
    run: asyncio.Task[None] | None = None
    """From the start of a process to its end."""
    process: ModelProcess | None = None
    loading: asyncio.Future[None] | None = None
    """Done when that process serves, or has ended before; an ApiError if it will not serve."""
    idle_timer: asyncio.TimerHandle | None = None
    counts: ModelCounts = field(default_factory=ModelCounts)
    _failures_in_a_row: int = 0
    _loaded_at: float = 0.0

    @property
    def name(self) -> str:
        """The one in responses."""
        return self.config.name

    @property
    def holds_memory(self) -> bool:
        """Whether its process has loaded the model and has not ended."""
        return self.run is not None and self.loading is not None and self.loading.done()

    @property
    def can_be_stopped(self) -> bool:
        """Whether another model may take its place now."""
        return self.state is ModelState.LOADED and not self.users and not self.config.keep

    def begins(self, run: asyncio.Task[None]) -> None:
        """`run` starts its process."""
        self.state, self.waits_for, self.run = ModelState.LOADING, "", run
        self.loading = asyncio.get_running_loop().create_future()

    def is_loaded(self, ready: Ready, seconds: float) -> None:
        """Its process serves, after `seconds`."""
        assert self.loading is not None
        self.state, self.ready, self.reserved_bytes = ModelState.LOADED, ready, ready.host_bytes
        self.counts.starts += 1
        self.counts.start_seconds += seconds
        self._loaded_at = asyncio.get_running_loop().time()
        self.loading.set_result(None)

    def has_ended(self, reason: str) -> None:
        """It has no process any more. `reason` is why it has failed; "": it may be started again at
        once."""
        now = asyncio.get_running_loop().time()
        was_stopped = self.state is ModelState.UNLOADING
        was_stable = self.state is ModelState.LOADED and now - self._loaded_at > _STABLE_AFTER_S
        if was_stopped or was_stable:
            self._failures_in_a_row = 0
        self.state, self.reason = ModelState.UNLOADED, reason
        self.run, self.process, self.reserved_bytes, self.retry_at = None, None, 0, now
        if reason:
            self.state = ModelState.FAILED
            self.counts.failures += 1
            delay_s = _FIRST_DELAY_S * 2 ** min(self._failures_in_a_row, 16)
            self.retry_at = now + min(delay_s, _LONGEST_DELAY_S)
            self._failures_in_a_row += 1
        if self.loading is None or self.loading.done():
            return
        if reason or was_stopped:
            self.loading.set_exception(self.refusal())
            self.loading.exception()  # perhaps no request waits for it
        else:
            self.loading.set_result(None)  # a request that came late starts it again

    def refusal(self) -> ApiError:
        """Why a request for it is refused while it has no process."""
        if not self.reason:
            return ApiError(503, f"The model `{self.name}` was unloaded; try again.")
        wait_s = max(self.retry_at - asyncio.get_running_loop().time(), 0.0)
        return ApiError(
            503,
            f"The model `{self.name}` cannot be served: {self.reason}",
            retry_after_s=ceil(wait_s) + 1,
        )

    def forgive(self) -> None:
        """Lets it be started at once, whatever failed before."""
        self._failures_in_a_row, self.retry_at = 0, 0.0
