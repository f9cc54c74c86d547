"""Limits of a key over time, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pagemill.server.errors import ApiError
from pagemill.server.limits.ledger import Ledger
from pagemill.server.limits.limiter import KeyLimiter, KeyLimits, duration


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Key:
    """The key "web" with `limits`."""

    limits: KeyLimits
    clock: Clock
    limiter: KeyLimiter

    def refusal(self) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.limiter.admit("web", self.limits)
        assert caught.value.status == 429
        return caught.value

    @property
    def headers(self) -> dict[str, str]:
        found = self.limiter.headers("web", self.limits)
        return {name.decode().removeprefix("x-ratelimit-"): v.decode() for name, v in found}


def key(limits: KeyLimits) -> Key:
    clock = Clock()
    return Key(limits, clock, KeyLimiter(clock=clock))


def test_requests_by_the_minute() -> None:
    web = key(KeyLimits(requests_per_minute=3))
    for _ in range(3):
        web.limiter.admit("web", web.limits).leave()
    refusal = web.refusal()
    assert refusal.retry_after_s == 20 and "requests_per_minute" in refusal.message
    web.limiter.admit("batch", web.limits)  # another key has its own
    web.clock.now += 19.9
    web.refusal()
    web.clock.now += 0.1
    web.limiter.admit("web", web.limits)
    web.refusal()
    web.clock.now += 3600  # a minute's worth and no more
    for _ in range(3):
        web.limiter.admit("web", web.limits)
    web.refusal()


def test_requests_in_progress() -> None:
    web = key(KeyLimits(concurrency=2))
    first, _ = (web.limiter.admit("web", web.limits) for _ in range(2))
    assert "`concurrency`" in web.refusal().message
    charge = first.charge(10)
    first.leave()  # the response is over, and its work goes on
    web.refusal()
    charge.settle(10)
    charge.settle(10)  # does nothing
    web.limiter.admit("web", web.limits)
    web.refusal()


def test_tokens_are_charged_and_corrected() -> None:
    web = key(KeyLimits(tokens_per_minute=600))
    admitted = web.limiter.admit("web", web.limits)
    charge = admitted.charge(500)
    assert web.headers["remaining-tokens"] == "100"
    with pytest.raises(ApiError) as caught:
        admitted.charge(120)
    assert caught.value.retry_after_s == 2 and "tokens_per_minute" in caught.value.message
    charge.settle(50)
    assert web.headers["remaining-tokens"] == "550"
    admitted.charge(120).settle(300)  # more than was foreseen
    assert web.headers["remaining-tokens"] == "250"


def test_a_request_beyond_a_minutes_tokens_needs_and_uses_all() -> None:
    web = key(KeyLimits(tokens_per_minute=600))
    charge = web.limiter.admit("web", web.limits).charge(1800)
    assert web.headers["remaining-tokens"] == "0" and web.headers["reset-tokens"] == "3m0s"
    assert web.refusal().retry_after_s == 121  # paid back, and one token more
    web.clock.now += 60
    charge.settle(1800)
    assert web.refusal().retry_after_s == 61
    web.clock.now += 61
    admitted = web.limiter.admit("web", web.limits)
    with pytest.raises(ApiError) as caught:
        admitted.charge(601)
    assert caught.value.retry_after_s == 59


def test_headers() -> None:
    web = key(KeyLimits(requests_per_minute=60, tokens_per_minute=6000))
    web.limiter.admit("web", web.limits).charge(9)
    assert web.headers == {
        "limit-requests": "60",
        "remaining-requests": "59",
        "reset-requests": "1s",
        "limit-tokens": "6000",
        "remaining-tokens": "5991",
        "reset-tokens": "90ms",
    }
    assert not key(KeyLimits(concurrency=1)).headers


def test_other_limits_apply_from_the_next_request_on() -> None:
    web = key(KeyLimits(requests_per_minute=1))
    web.limiter.admit("web", web.limits)
    web.refusal()
    web.limiter.admit("web", KeyLimits(requests_per_minute=2))


def test_limits_are_those_of_all_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "limits")
    Ledger.create(path)
    clock, limits = Clock(), KeyLimits(concurrency=2, requests_per_minute=3)
    first, second = (KeyLimiter(Ledger(path, process), clock) for process in range(2))
    begun = [limiter.admit("web", limits) for limiter in (first, second)]
    for limiter in (first, second):
        with pytest.raises(ApiError, match="`concurrency`"):
            limiter.admit("web", limits)
    begun[0].leave()
    second.admit("web", limits)
    begun[1].leave()
    for limiter in (first, second):
        with pytest.raises(ApiError, match="requests_per_minute"):
            limiter.admit("web", limits)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0171, "18ms"), (1, "1s"), (1.5, "1.5s"), (59.9999, "1m0s"), (372, "6m12s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
