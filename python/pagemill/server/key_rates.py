"""Requests and tokens per minute, and requests at a time, of each API key: an ASGI layer.

A request is counted when it begins, its tokens when it has ended: how many there are is known then.
So a key may overdraw its tokens by the requests that run, and waits longer for the next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagemill.server.caller import Caller
from pagemill.server.endpoints.table import error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.key_limits import KeyLimits
from pagemill.server.records.record import RequestRecord

Clock = Callable[[], float]


class Allowance:
    """A number that comes back over a minute: `limit` at most, and less than 0 if overdrawn."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit = limit
        self._clock = clock
        self._level = float(limit)
        self._at = clock()

    @property
    def left(self) -> float:
        """How much may be taken now."""
        now = self._clock()
        self._level = min(self.limit, self._level + (now - self._at) * self.limit / 60)
        self._at = now
        return self._level

    def take(self, amount: int) -> None:
        """Takes it, whether it is there or not."""
        self._level = self.left - amount

    def seconds_until(self, amount: float) -> float:
        """When there will be so much."""
        return max(0.0, amount - self.left) * 60 / self.limit


class _Meter:
    """What one key takes."""

    def __init__(self, limits: KeyLimits, clock: Clock) -> None:
        self.limits = limits
        self.num_running = 0
        self.requests = _allowance(limits.requests_per_minute, clock)
        self.tokens = _allowance(limits.tokens_per_minute, clock)

    def refusal(self, key_id: str) -> ApiError | None:
        """Why the next request has to wait."""
        limits = self.limits
        if limits.concurrency and self.num_running >= limits.concurrency:
            return _refusal(key_id, f"{self.num_running} requests at a time", 1)
        if self.requests is not None and (wait := self.requests.seconds_until(1)):
            return _refusal(key_id, f"{self.requests.limit} requests per minute", wait)
        # Of tokens any that is left will do: how many the request takes is not known yet.
        if self.tokens is not None and (wait := self.tokens.seconds_until(1)):
            return _refusal(key_id, f"{self.tokens.limit} tokens per minute", wait)
        return None

    def headers(self) -> dict[str, str]:
        """Those of OpenAI's API."""
        found: dict[str, str] = {}
        for name, allowance in (("requests", self.requests), ("tokens", self.tokens)):
            if allowance is not None:
                found[f"x-ratelimit-limit-{name}"] = str(allowance.limit)
                found[f"x-ratelimit-remaining-{name}"] = str(max(0, math.floor(allowance.left)))
                reset = allowance.seconds_until(allowance.limit)
                found[f"x-ratelimit-reset-{name}"] = f"{reset:.3f}s"
        return found


class KeyRates:
    """Refuses POST requests of a key that has taken what it may with 429. Knows each key from its
    first request on; the callers are those that `ApiKeyAuth` has found."""

    def __init__(self, app: ASGIApp, clock: Clock = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._meters: dict[str, _Meter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        caller: Caller = scope["state"]["caller"]
        if not caller.limits.has_rates:
            await self._app(scope, receive, send)
            return
        meter = self._meter(caller)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(meter.headers())
            await send(message)

        refusal = meter.refusal(caller.key_id)
        if refusal is not None:
            response = error_response(refusal, error_shape(scope["path"]))
            await response(scope, receive, send_with_headers)
            return
        record: RequestRecord | None = scope["state"].get("record")
        if record is not None and meter.tokens is not None:
            record.charge = meter.tokens.take
        meter.num_running += 1
        if meter.requests is not None:
            meter.requests.take(1)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            meter.num_running -= 1

    def _meter(self, caller: Caller) -> _Meter:
        """The key's meter; another one, with its requests still running, if its limits changed."""
        meter = self._meters.get(caller.key_id)
        if meter is None:
            meter = self._meters[caller.key_id] = _Meter(caller.limits, self._clock)
        elif meter.limits != caller.limits:
            meter.limits = caller.limits
            meter.requests = _allowance(caller.limits.requests_per_minute, self._clock)
            meter.tokens = _allowance(caller.limits.tokens_per_minute, self._clock)
        return meter


def _allowance(limit: int, clock: Clock) -> Allowance | None:
    return Allowance(limit, clock) if limit else None


def _refusal(key_id: str, what: str, wait_s: float) -> ApiError:
    return ApiError(
        429,
        f"The API key {key_id!r} may send {what} (--api-key-file).",
        retry_after_s=max(1, math.ceil(wait_s)),
    )
