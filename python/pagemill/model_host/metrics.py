"""Metrics of several models, read when Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pagemill.model_host.host import ModelHost
from pagemill.model_host.hosted_model import ModelState

_OUTCOMES = ("served", "failed", "broken", "aborted", "refused")
_STOPS = ("idle", "memory", "operator")


class HostCollector(Collector):
    """Counts of a host of models."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        """Yields all families."""
        loaded = _gauge("loaded", "1 if the model is loaded.")
        used = _gauge("requests_running", "Requests that the model answers or that wait for it.")
        reserved = _gauge("reserved_bytes", "Host memory that the model may use.")
        requests = _counter("requests", "Requests by how they ended.", "outcome")
        stops = _counter("stops", "Times that the model was stopped, by what for.", "reason")
        failures = _counter("failures", "Failed starts, and processes that ended by themselves.")
        starts = SummaryMetricFamily(
            "pagemill:models_start_seconds",
            "Times that the model was loaded, and how long that took.",
            labels=["model"],
        )
        for model in self._host.models:
            name, counts = model.name, model.counts
            loaded.add_metric([name], float(model.state is ModelState.LOADED))
            used.add_metric([name], model.users)
            reserved.add_metric([name], model.reserved_bytes)
            for outcome in _OUTCOMES:
                requests.add_metric([name, outcome], counts.requests[outcome])
            for reason in _STOPS:
                stops.add_metric([name, reason], counts.stops[reason])
            failures.add_metric([name], counts.failures)
            starts.add_metric([name], counts.starts, counts.start_seconds)
        waiting = GaugeMetricFamily(
            "pagemill:models_requests_waiting", "Requests that wait for a model to be loaded."
        )
        waiting.add_metric([], self._host.waiting)
        yield from (loaded, used, reserved, requests, stops, failures, starts, waiting)

    def describe(self) -> Iterable[Metric]:
        """Declares no metrics in advance."""
        return ()


class HostMetrics:
    """One registry per host of models."""

    def __init__(self, host: ModelHost) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(HostCollector(host))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Prometheus text."""
        return generate_latest(self._registry)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"pagemill:models_{name}", text, labels=["model", *labels])


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pagemill:models_{name}", text, labels=["model"])
