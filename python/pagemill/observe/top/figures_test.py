"""Figures of scripted metrics: rates, percentiles, restarts, and servers that are away."""

import pytest

from pagemill.observe.top.followed import FollowedServer
from pagemill.observe.top.graph import graph
from pagemill.observe.top.scrape import Scrape, quantile
from pagemill.observe.top.scripted_metrics import ScriptedClock, ScriptedMetrics
from pagemill.observe.top.text import count, duration, model_name, share, table


def _followed(metrics: ScriptedMetrics, clock: ScriptedClock) -> FollowedServer:
    return FollowedServer("http://a:1", metrics.read, 10.0, clock)


def _busy() -> ScriptedMetrics:
    metrics = ScriptedMetrics()
    metrics.add(num_requests_running=3, num_requests_waiting=1, kv_cache_usage_perc=0.25)
    metrics.add(prompt_tokens_total=1000, generation_tokens_total=500)
    metrics.add(prefix_cache_hits_total=0, prefix_cache_queries_total=0)
    metrics.tenants = {"shop": (4, 100, 50), "idle": (1, 10, 10)}
    metrics.observe("time_to_first_token_seconds", *[0.4] * 1000)
    return metrics


def test_figures_are_of_the_window() -> None:
    clock, metrics = ScriptedClock(), _busy()
    server = _followed(metrics, clock)
    server.poll()
    assert server.state == "ready" and not server.points
    for _ in range(4):
        clock.now += 5
        metrics.add(prompt_tokens_total=50, generation_tokens_total=100)
        metrics.add(requests_refused_total=1, requests_turned_away_total=2)
        metrics.add(prefix_cache_hits_total=30, prefix_cache_queries_total=40)
        metrics.observe("time_to_first_token_seconds", 0.06, 0.06, 0.06, 0.2)
        requests, prompt_tokens, generation_tokens = metrics.tenants["shop"]
        metrics.tenants["shop"] = (requests + 5, prompt_tokens + 5, generation_tokens + 5)
        server.poll()
    now = server.now
    assert now is not None and now.model == "SmolLM2-135M-Instruct"
    assert (now.seconds, now.running, now.waiting, now.kv_usage) == (10, 3, 1, 0.25)
    assert (now.prompt_tokens, now.generation_tokens, now.prefix_hits) == (10, 20, 0.75)
    assert now.drafts_accepted is None and now.queue_time is None and now.refused == 6
    assert now.time_to_first_token is not None
    assert 0.05 < now.time_to_first_token.p50 < 0.1 < now.time_to_first_token.p99 < 0.25
    assert [(t.tenant, t.requests) for t in now.tenants] == [("shop", 1.0)]
    assert [point.generation_tokens for point in server.points] == [20] * 4


def test_a_server_that_is_away_comes_back() -> None:
    clock, metrics = ScriptedClock(), _busy()
    server = _followed(metrics, clock)
    server.poll()
    clock.now += 1
    server.poll()
    metrics.away = "no server answers at a:1"
    server.poll()
    assert server.state == "away" and len(server.points) == 1
    shown = table([server])
    assert "http://a:1 is away: no server answers at a:1" in shown
    metrics.away = ""
    clock.now += 100
    metrics.add(generation_tokens_total=-400)  # started again
    server.poll()
    assert server.state == "ready"
    clock.now += 1
    metrics.add(generation_tokens_total=7)
    server.poll()
    assert server.now is not None and server.now.generation_tokens == 7


def test_a_restart_between_two_readings_is_not_a_negative_rate() -> None:
    clock, metrics = ScriptedClock(), _busy()
    server = _followed(metrics, clock)
    server.poll()
    clock.now += 1
    metrics.values["generation_tokens_total"] = 3
    server.poll()
    assert server.now is not None and server.now.generation_tokens == 0
    assert not server.points


def test_a_server_that_loads_has_no_metrics() -> None:
    server = FollowedServer("a", lambda: "", 10.0)
    server.poll()
    assert server.state == "loading"
    assert "loading" in table([server])


@pytest.mark.parametrize(
    "text",
    [
        "<html>{",
        "pagemill:num_requests_running NaN\n",
        "pagemill:num_requests_running +Inf\n",
        'pagemill:time_to_first_token_seconds_bucket{le="x"} 1\n',
    ],
)
def test_text_that_is_not_metrics_is_no_failure(text: str) -> None:
    server = FollowedServer("a", lambda: text, 10.0)
    server.poll()
    assert server.state == "away" and server.away


def test_quantiles_interpolate_as_prometheus_does() -> None:
    inf = float("inf")
    buckets = {0.1: 0.0, 0.2: 10.0, inf: 10.0}
    assert quantile(0.5, {}, buckets) == pytest.approx(0.15)
    assert quantile(0.5, buckets, buckets) is None
    assert quantile(0.99, {}, {0.1: 0.0, inf: 5.0}) == 0.1
    assert quantile(0.5, {}, {}) is None


def test_names_without_the_prefix_are_left_out() -> None:
    assert "process_cpu_seconds_total" not in Scrape(_busy().read(), 0.0)


def test_numbers_are_short() -> None:
    assert [count(n) for n in (0, 0.25, 3, 42.4, 1234, 123_456, 7.2e6)] == [
        *("0", "0.2", "3", "42", "1.23k", "123k", "7.2M")
    ]
    shown = [duration(s) for s in (0.0005, 0.0213, 1.5, 200)]
    assert shown == ["0.5 ms", "21 ms", "1.5 s", "200 s"]
    assert (share(None), share(0.5)) == ("-", "50%")
    assert model_name("/models/" + "a" * 40) == "…" + "a" * 31


def test_graphs_begin_at_zero() -> None:
    assert graph([0, 1, 2], 4, 1) == "  ▄█"
    assert graph([1, 1], 2, 2, top=2) == "  \n██"
    assert graph([5, 1, 1], 2, 1) == "██"
    assert graph([], 3, 1) == "   "
    assert graph([1], 0, 1) == ""
