"""When refused clients come back, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pagemill.server.return_times import LONGEST_S, ReturnTimes


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def busy(rate: int) -> tuple[Clock, ReturnTimes]:
    """A server that has been full for 20 s and has served `rate` requests in each of them."""
    clock = Clock()
    times = ReturnTimes(clock)
    for _ in range(20):
        times.refused(1)
        for _ in range(rate):
            clock.now += 1 / rate
            times.ended()
    return clock, times


def test_the_engines_time_while_the_speed_is_not_known() -> None:
    times = ReturnTimes(Clock())
    assert [times.refused(3) for _ in range(100)] == [3] * 100


def test_clients_come_back_at_the_speed_of_the_server() -> None:
    _, times = busy(rate=50)
    waits = [times.refused(1) for _ in range(1000)]
    assert waits == sorted(waits) and waits[0] == 1
    assert waits[-1] == pytest.approx(21, abs=2)  # 1,000 turns at 50 a second
    middle = waits.count(10)
    assert middle == pytest.approx(50, abs=5)


def test_a_turn_is_never_sooner_than_the_engines_time() -> None:
    _, times = busy(rate=50)
    assert times.refused(7) == 7


def test_waits_are_bounded() -> None:
    _, times = busy(rate=1)
    waits = [times.refused(1) for _ in range(5000)]
    assert max(waits) == LONGEST_S
    assert times.refused(90) == 90  # the engine knows better


def test_turns_of_a_crowd_that_has_left_are_forgotten() -> None:
    clock, times = busy(rate=50)
    for _ in range(2000):
        times.refused(1)
    clock.now += 11  # without a refusal
    assert times.refused(1) == 1
