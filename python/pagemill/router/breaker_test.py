"""When a server gets requests, and when it is probed."""

from pagemill.router.breaker import MAX_DOUBLINGS, Breaker


def test_a_probe_decides() -> None:
    breaker = Breaker(1.0)
    assert not breaker.closed and breaker.probe_at <= 0
    breaker.probed(10.0, succeeded=False)
    assert not breaker.closed and breaker.probe_at == 11.0
    breaker.probed(11.0, succeeded=True)
    assert breaker.closed and breaker.probe_at == 12.0


def test_a_server_that_fails_what_it_is_sent_is_probed_less_and_less() -> None:
    breaker = Breaker(1.0)
    waits: list[float] = []
    for i in range(MAX_DOUBLINGS + 3):
        now = 100.0 * i
        breaker.probed(now, succeeded=True)
        breaker.request_failed(now)
        breaker.request_failed(now)  # one of many that were under way
        assert not breaker.closed
        waits.append(breaker.probe_at - now)
    assert waits == [1, 2, 4, 8, 16, 32, 32, 32]
    breaker.probed(1000.0, succeeded=True)
    breaker.request_served()
    breaker.request_failed(1000.0)
    assert breaker.probe_at == 1001.0
