"""Prometheus metrics of one server.

The engine's gauges and counters are read when Prometheus scrapes (`EngineCollector`); times and
finish reasons, which only the front end knows, are recorded as they occur (`RequestMetrics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pagemill.observe.histogram import TokenHistogram
from pagemill.observe.snapshot import EngineSnapshot, kv_usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = ("model_name", "engine")
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
# Below 10 ms as well: a small model decodes faster than the reference system's first bucket.
_TOKEN_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


def token_buckets(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `max_model_len`."""
    series = [float(m * 10**e) for e in range(10) for m in (1, 2, 5)]
    return tuple(b for b in series if b <= max_model_len) or (1.0,)


class EngineCollector(Collector):
    """Reads the engine's statistics at scrape time."""

    def __init__(self, model_name: str, stats: Callable[[], EngineSnapshot]) -> None:
        self._values = [model_name, "0"]
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yields the families whose values the engine keeps."""
        stats = self._stats()
        yield self._family(
            "gauge", "kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", kv_usage(stats)
        )
        for name, kind, family, text in stats.fields:
            if family:
                sentence = f"{text[:1].upper()}{text[1:]}."
                yield self._family(kind, family, sentence, getattr(stats, name))

    def describe(self) -> Iterable[Metric]:
        """Declares no metrics in advance: registration must not call the engine."""
        return ()

    def _family(self, kind: str, name: str, text: str, value: float) -> Metric:
        make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
        family = make(f"pagemill:{name}", text, labels=_LABELS)
        family.add_metric(self._values, float(value))
        return family


class RequestMetrics:
    """Metrics of requests in the front end. One registry per server: no globals.

    With `shared_folder`, the counts are those of all processes of the server, also of those that
    have ended. Each keeps its own in mapped files there, which prometheus_client does if its
    variable PROMETHEUS_MULTIPROC_DIR names the folder when the process starts.
    """

    def __init__(self, model_name: str, max_model_len: int, shared_folder: str = "") -> None:
        self.registry = CollectorRegistry()
        self._exposed = self.registry
        if shared_folder:
            self._exposed = CollectorRegistry()
            MultiProcessCollector(self._exposed, shared_folder)
        ProcessCollector(registry=self._exposed)
        PlatformCollector(registry=self._exposed)
        GCCollector(registry=self._exposed)
        self._label_values = (model_name, "0")
        lengths = token_buckets(max_model_len)
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "Arrival to the first token.", _TTFT_S
        )
        self.inter_token_latency = TokenHistogram(
            "pagemill:inter_token_latency_seconds",
            "From one token to the next.",
            dict(zip(_LABELS, self._label_values, strict=True)),
            _TOKEN_S,
        )
        self.registry.register(self.inter_token_latency)
        self.e2e = self._histogram(
            "e2e_request_latency_seconds", "Arrival to the last token.", _REQUEST_S
        )
        self.queue = self._histogram(
            "request_queue_time_seconds", "Submission to the first step.", _REQUEST_S
        )
        self.prefill = self._histogram(
            "request_prefill_time_seconds", "First step to the first token.", _REQUEST_S
        )
        self.decode = self._histogram(
            "request_decode_time_seconds", "First to last token.", _REQUEST_S
        )
        self.prompt_tokens = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a request.", lengths
        )
        self.generation_tokens = self._histogram(
            "request_generation_tokens", "Tokens generated for a choice.", lengths
        )
        self._success = Counter(
            "pagemill:request_success",
            "Choices that finished, by reason.",
            (*_LABELS, "finished_reason"),
            registry=self.registry,
        )
        self._success_of = {
            reason: self._success.labels(*self._label_values, reason)
            for reason in ("stop", "length", "abort", "error")
        }
        self._http = Counter(
            "pagemill:http_responses",
            "Responses of the API, by path, status and API key.",
            ("path", "status", "key"),
            registry=self.registry,
        )

    def watch(self, stats: Callable[[], EngineSnapshot]) -> None:
        """Adds the engine's own families."""
        self._exposed.register(EngineCollector(self._label_values[0], stats))

    def finished(self, reason: str) -> None:
        """Counts a choice that ended with `reason`."""
        self._success_of[reason].inc()

    def responded(self, path: str, status: int, key_id: str = "") -> None:
        """Counts an HTTP response; `path` is one of the server's own routes."""
        self._http.labels(path, str(status), key_id).inc()

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self._exposed)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(
            f"pagemill:{name}", text, _LABELS, buckets=buckets, registry=self.registry
        )
        return family.labels(*self._label_values)
