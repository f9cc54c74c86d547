"""Admits requests of API keys that have limits, and counts what they use.

    admitted = limiter.admit("web", limits)      # ApiError 429 if a limit is reached
    charge = admitted.charge(120)                # tokens that the request may take at most
    ...
    charge.settle(37)                            # tokens that it took
    admitted.leave()

A limit by the minute is a bucket that is filled evenly: a key that was idle may use a minute's
worth at once, and then as much as flows in. Times are those of a monotonic clock.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from pagemill.server.errors import ApiError
from pagemill.server.limits.ledger import Account, Ledger

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may use; None is no limit."""

    concurrency: int | None = None
    """Requests in progress at a time."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Tokens of prompts and outputs together."""


class Charge:
    """Tokens that a request may take at most, until it is known how many it took."""

    def __init__(self, settle: Callable[[int], None] | None = None) -> None:
        self._settle = settle

    def settle(self, used: int) -> None:
        """The request's work is over and took `used` tokens. Only the first call counts."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(used)


class Admitted:
    """A request in progress. It is over when it has left and all its charges are settled: work may
    go on after the response."""

    def __init__(self, limiter: KeyLimiter, key_id: str, limits: KeyLimits) -> None:
        self._limiter = limiter
        self._key_id = key_id
        self._limits = limits
        self._holders = 1

    def charge(self, tokens: int) -> Charge:
        """Counts `tokens` as used.

        Raises:
            ApiError: 429: they are not available now; nothing was counted.
        """
        limit = self._limits.tokens_per_minute
        if limit is not None:
            with self._limiter.account(self._key_id, self._limits) as account:
                _check(self._key_id, "tokens_per_minute", limit, account.tokens, tokens)
                account.tokens += tokens
        self._holders += 1

        def settle(used: int) -> None:
            if limit is not None:
                with self._limiter.account(self._key_id, self._limits) as account:
                    account.tokens = max(0.0, account.tokens + used - tokens)
            self.leave()

        return Charge(settle)

    def leave(self) -> None:
        """The response is over."""
        self._holders -= 1
        if self._holders == 0:
            self._limiter.leave(self._key_id, self._limits)


class KeyLimiter:
    """The limits of all keys. Event loop only."""

    def __init__(
        self, ledger: Ledger | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` has the same time in all processes that share `ledger`."""
        self._ledger = ledger or Ledger()
        self._clock = clock

    def admit(self, key_id: str, limits: KeyLimits) -> Admitted:
        """Counts a request of the key `key_id` as in progress.

        Raises:
            ApiError: 429: a limit of the key is reached; nothing was counted.
        """
        with self.account(key_id, limits) as account:
            concurrency = limits.concurrency
            if concurrency is not None and sum(account.running) >= concurrency:
                raise ApiError(
                    429,
                    f"The API key {key_id!r} has {concurrency} request(s) in progress, as many as"
                    " its `concurrency` allows; wait for one to end.",
                )
            if limits.tokens_per_minute is not None:  # whatever its length, it takes a token
                limit = limits.tokens_per_minute
                _check(key_id, "tokens_per_minute", limit, account.tokens, 1)
            if limits.requests_per_minute is not None:
                limit = limits.requests_per_minute
                _check(key_id, "requests_per_minute", limit, account.requests, 1)
            account.requests += 1
            account.running[self._ledger.process] += 1
        return Admitted(self, key_id, limits)

    def leave(self, key_id: str, limits: KeyLimits) -> None:
        """A request of `admit` is over."""
        with self.account(key_id, limits) as account:
            running = account.running[self._ledger.process]
            account.running[self._ledger.process] = max(0, running - 1)

    def headers(self, key_id: str, limits: KeyLimits) -> list[tuple[bytes, bytes]]:
        """OpenAI's headers: what is left of the key's limits by the minute."""
        with self.account(key_id, limits) as account:
            return [
                *_headers(b"requests", limits.requests_per_minute, account.requests),
                *_headers(b"tokens", limits.tokens_per_minute, account.tokens),
            ]

    @contextlib.contextmanager
    def account(self, key_id: str, limits: KeyLimits) -> Generator[Account]:
        """The key's account as of now, to be changed."""
        with self._ledger.account(key_id) as account:
            now = self._clock()
            minutes = max(0.0, now - account.updated) / _MINUTE_S
            account.requests = _faded(account.requests, limits.requests_per_minute, minutes)
            account.tokens = _faded(account.tokens, limits.tokens_per_minute, minutes)
            account.updated = now
            yield account


def _faded(used: float, limit: int | None, minutes: float) -> float:
    return 0.0 if limit is None else max(0.0, used - limit * minutes)


def _check(key_id: str, name: str, limit: int, used: float, more: int) -> None:
    """Raises a 429 ApiError unless `more` are available. What exceeds a whole minute's worth needs
    all of that, and the key pays the rest later."""
    missing = used + min(more, limit) - limit
    if missing <= 0:
        return
    seconds = max(1, math.ceil(missing / limit * _MINUTE_S))
    raise ApiError(
        429,
        f"The API key {key_id!r} has used up its `{name}` of {limit}; try again in {seconds} s.",
        retry_after_s=seconds,
    )


def _headers(name: bytes, limit: int | None, used: float) -> list[tuple[bytes, bytes]]:
    if limit is None:
        return []
    remaining, reset_s = max(0, math.floor(limit - used)), used / limit * _MINUTE_S
    return [
        (b"x-ratelimit-limit-" + name, b"%d" % limit),
        (b"x-ratelimit-remaining-" + name, b"%d" % remaining),
        (b"x-ratelimit-reset-" + name, duration(reset_s).encode()),
    ]


def duration(seconds: float) -> str:
    """As OpenAI writes it: "0s", "17ms", "1.5s", "6m0s"."""
    milliseconds = math.ceil(1000 * seconds)
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
