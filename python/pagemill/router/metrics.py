"""The router's own metrics, read when Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pagemill.router.fleet import Fleet


class FleetCollector(Collector):
    """Counts of a fleet."""

    def __init__(self, fleet: Fleet, policy: str) -> None:
        self._fleet = fleet
        self._policy = policy

    def collect(self) -> Iterator[Metric]:
        """Yields all families."""
        requests = _counter("requests", "Requests by how they ended.", ["server", "outcome"])
        available = _gauge("server_available", "1 if the server gets requests.", ["server"])
        running = _gauge("requests_running", "Requests that a server answers.", ["server"])
        events = _counter("kv_events", "KV events received.", ["server"])
        lost = _counter("kv_events_lost", "KV events that were dropped unread.", ["server"])
        for server in self._fleet.servers:
            url, counts = server.upstream.url, server.counts
            for outcome in ("served", "failed", "broken", "aborted"):
                requests.add_metric([url, outcome], getattr(counts, outcome))
            available.add_metric([url], float(server in self._fleet.available))
            running.add_metric([url], self._fleet.router.num_requests(server.index))
            events.add_metric([url], counts.events)
            lost.add_metric([url], counts.events_lost)
        yield from (requests, available, running, events, lost)
        stats = self._fleet.router.stats()
        for name, value, text in (
            ("routed", stats["num_routed"], "Requests that the policy chose a server for."),
            ("prefix_hits", stats["num_prefix_hits"], "Those sent to a server with a prefix."),
            ("prefix_tokens", stats["prefix_tokens"], "Tokens of these prefixes."),
            ("retries", self._fleet.retries, "Requests that were tried on a second server."),
        ):
            family = _counter(name, text, ["policy"])
            family.add_metric([self._policy], value)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Declares no metrics in advance."""
        return ()


class RouterMetrics:
    """One registry per router."""

    def __init__(self, fleet: Fleet, policy: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(FleetCollector(fleet, policy))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Prometheus text."""
        return generate_latest(self._registry)


def _counter(name: str, text: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"pagemill:router_{name}", text, labels=labels)


def _gauge(name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pagemill:router_{name}", text, labels=labels)
