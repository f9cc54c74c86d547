"""Prometheus metrics of one server.

The engine's gauges and counters are read when Prometheus scrapes (`EngineCollector`); times and
finish reasons, which only the front end knows, are recorded as they occur (`RequestMetrics`).
`families` and `engine_families` are the tables of what there is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pagemill.observe.adapter_requests import AdapterRequests
from pagemill.observe.bounded_labels import BoundedLabels
from pagemill.observe.buckets import TOKEN_S
from pagemill.observe.compatibility import under_reference_names
from pagemill.observe.engine_families import EngineCollector
from pagemill.observe.families import FamilySet
from pagemill.observe.histogram import TokenHistogram
from pagemill.observe.restarts import RestartCollector
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.observe.work_families import StepWork

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """What is recorded and exposed.

    With `shared_folder`, the counts are those of all processes of the server, also of those that
    have ended. Each keeps its own in mapped files there, which prometheus_client does if its
    variable PROMETHEUS_MULTIPROC_DIR names the folder when the process starts.
    """

    shared_folder: str = ""
    reference_names: bool = False
    """Metrics that the reference system has are exposed under its names, too."""
    max_tenants: int = 100
    """Tenants with metrics of their own, and keys."""
    estimate_work: bool = False
    """What steps compute and read is estimated."""


@dataclass(frozen=True, slots=True)
class ChoiceTimes:
    """Where the time of a choice went, in seconds; the engine's are None if it was not the one that
    ended the choice."""

    e2e: float
    generation: float
    """First to last token."""
    queued: float | None = None
    prefill: float | None = None
    decode: float | None = None


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What a request of a tenant took; times are in seconds, None if it did not get so far."""

    prompt_tokens: int
    completion_tokens: int
    time_to_first_token: float | None = None
    queued: float | None = None


class RequestMetrics:
    """Metrics of requests in the front end. One registry per server: no globals."""

    def __init__(
        self,
        model_name: str,
        max_model_len: int,
        options: MetricsOptions | None = None,
        cache_config: Mapping[str, object] | None = None,
        work: StepWork | None = None,
    ) -> None:
        """`cache_config`: the options of the KV cache, by name. `work`: of the model, if what its
        steps compute is estimated."""
        options = options or MetricsOptions()
        self._reference_names = options.reference_names
        self._cache_config = cache_config or {}
        self._work = work
        self.registry = CollectorRegistry()
        self._exposed = self.registry
        folder = options.shared_folder
        if folder:
            self._exposed = CollectorRegistry()
            MultiProcessCollector(self._exposed, folder)
        ProcessCollector(registry=self._exposed)
        PlatformCollector(registry=self._exposed)
        GCCollector(registry=self._exposed)
        self._exposed.register(RestartCollector(folder))
        self.adapters = AdapterRequests()
        self._families = FamilySet(self.registry, max_model_len)
        self._tenants = BoundedLabels(options.max_tenants, _below(folder, "tenants"))
        self._keys = BoundedLabels(options.max_tenants, _below(folder, "keys"))
        self._label_values = (model_name, "0")
        self._bind()
        self._of_engines: dict[int, RequestMetrics] = {0: self}

    def of_engine(self, number: int) -> RequestMetrics:
        """The same metrics, for requests on engine `number`."""
        if number not in self._of_engines:
            other = copy.copy(self)
            other._label_values = (self.model_name, str(number))
            other._bind()
            self._of_engines[number] = other
        return self._of_engines[number]

    def _bind(self) -> None:
        """Finds the metrics with these labels, once for all requests."""
        of_model = self._of_model
        self.time_to_first_token = of_model("time_to_first_token_seconds")
        self.inter_token_latency = TokenHistogram(of_model("inter_token_latency_seconds"), TOKEN_S)
        self._e2e = of_model("e2e_request_latency_seconds")
        self._queue = of_model("request_queue_time_seconds")
        self._prefill = of_model("request_prefill_time_seconds")
        self._decode = of_model("request_decode_time_seconds")
        self._inference = of_model("request_inference_time_seconds")
        self._time_per_token = of_model("request_time_per_output_token_seconds")
        self._generation_tokens = of_model("request_generation_tokens")
        success = self._families.counters["request_success"]
        turned_away = self._families.counters["requests_turned_away"]
        self._turned_away = turned_away.labels(*self._label_values)
        self._success_of = {
            reason: success.labels(*self._label_values, reason)
            for reason in ("stop", "length", "abort", "error", "repetition")
        }

    @property
    def model_name(self) -> str:
        """The value of the label `model_name`."""
        return self._label_values[0]

    def watch(self, engines: Callable[[], Sequence[EngineSnapshot | None]]) -> None:
        """Adds the families of the engines, by their numbers; None: it cannot be reached."""
        collector = EngineCollector(self.model_name, engines, self._cache_config, self._work)
        self._exposed.register(collector)

    def serve_adapters(self, max_adapters: int) -> None:
        """Adds the metric of adapters; a step may have `max_adapters`."""
        self.adapters.max_adapters = max_adapters
        self._exposed.register(self.adapters)

    def submitted(self, prompt_tokens: int, max_tokens: int, n: int) -> None:
        """Counts a prompt that the engine accepted; each of its `n` choices may have `max_tokens`
        tokens."""
        self._of_model("request_prompt_tokens").observe(prompt_tokens)
        self._of_model("request_params_max_tokens").observe(max_tokens)
        self._of_model("request_params_n").observe(n)

    def choice_ended(self, reason: str, num_tokens: int, times: ChoiceTimes) -> None:
        """Counts a choice with `num_tokens` tokens that ended with `reason`."""
        self.finished(reason)
        self.inter_token_latency.flush()
        self._e2e.observe(times.e2e)
        self._generation_tokens.observe(num_tokens)
        if num_tokens > 1:
            self._time_per_token.observe(times.generation / (num_tokens - 1))
        if times.queued is None or times.prefill is None or times.decode is None:
            return
        self._queue.observe(times.queued)
        self._prefill.observe(times.prefill)
        self._decode.observe(times.decode)
        self._inference.observe(times.prefill + times.decode)

    def finished(self, reason: str) -> None:
        """Counts a choice that ended with `reason`, of which nothing else is known."""
        self._success_of[reason].inc()

    def prompt_ended(self, longest_choice: int, computed_tokens: int) -> None:
        """Counts a prompt all of whose choices are over, and which had at least one token."""
        self._of_model("request_max_num_generation_tokens").observe(longest_choice)
        self._of_model("request_prefill_kv_computed_tokens").observe(computed_tokens)

    def tenant_served(self, tenant: str, key_id: str, usage: TenantUsage) -> None:
        """Counts a request of `tenant` that is over."""
        labels = (*self._label_values, *self._tenants.of(tenant, key_id))
        counters, summaries = self._families.counters, self._families.summaries
        counters["tenant_requests"].labels(*labels).inc()
        counters["tenant_prompt_tokens"].labels(*labels).inc(usage.prompt_tokens)
        counters["tenant_generation_tokens"].labels(*labels).inc(usage.completion_tokens)
        if usage.time_to_first_token is not None:
            summary = summaries["tenant_time_to_first_token_seconds"]
            summary.labels(*labels).observe(usage.time_to_first_token)
        if usage.queued is not None:
            summaries["tenant_queue_time_seconds"].labels(*labels).observe(usage.queued)

    def grammar(self, outcome: str, compile_s: float | None = None) -> None:
        """Counts a request's grammar: "compiled" in `compile_s` seconds, "kept" or "refused"."""
        self._families.counters["grammar_requests"].labels(*self._label_values, outcome).inc()
        if compile_s is not None:
            self._of_model("grammar_compile_seconds").observe(compile_s)

    def watermark(self, status: str) -> None:
        """Counts a request of a server with a watermark; `status` is a value of that label."""
        self._families.counters["watermark_requests"].labels(*self._label_values, status).inc()

    def media_cache(self, queries: int, hits: int) -> None:
        """Counts images of a request, and those of them that had been prepared before."""
        counters = self._families.counters
        counters["mm_cache_queries"].labels(*self._label_values).inc(queries)
        counters["mm_cache_hits"].labels(*self._label_values).inc(hits)

    def encoder_request(self, server: str, outcome: str) -> None:
        """Counts a request to a server that encodes media; `outcome` is a value of that label."""
        labels = (*self._label_values, server, outcome)
        self._families.counters["encoder_requests"].labels(*labels).inc()

    def tool_called(self, server: str, succeeded: bool, seconds: float) -> None:
        """Counts a call of a tool of the MCP server named `server`."""
        labels = (*self._label_values, server)
        outcome = "completed" if succeeded else "failed"
        self._families.counters["tool_calls"].labels(*labels, outcome).inc()
        self._families.histograms["tool_call_seconds"].labels(*labels).observe(seconds)

    def batch_answered(self, succeeded: bool) -> None:
        """Counts a request of a batch that was answered."""
        outcome = "completed" if succeeded else "failed"
        self._families.counters["batch_requests"].labels(*self._label_values, outcome).inc()

    def batch_ended(self, status: str) -> None:
        """Counts a batch that ended; `status` is one of those that ended batches have."""
        self._families.counters["batches"].labels(*self._label_values, status).inc()

    def responded(
        self, path: str, method: str, status: int, duration_s: float, key_id: str = ""
    ) -> None:
        """Counts an HTTP response; `path` is one of the server's own routes, and `method` one of
        HTTP's."""
        counters = self._families.counters
        counters["http_responses"].labels(path, str(status), *self._keys.of(key_id)).inc()
        counters["http_requests"].labels(path, method, f"{status // 100}xx").inc()
        duration = self._families.histograms["http_request_duration_seconds"]
        duration.labels(path, method).observe(duration_s)

    def turned_away(self) -> None:
        """Counts a request that was refused before it was read."""
        self._turned_away.inc()

    def slow_reader(self) -> None:
        """Counts a connection that was closed because its client took too little."""
        self._families.counters["http_slow_readers"].labels(*self._label_values).inc()

    def families(self) -> list[Metric]:
        """All that is exposed, as it is now."""
        for metrics in self._of_engines.values():
            metrics.inter_token_latency.flush()
        return list(self._exposed.collect())

    def render(self) -> bytes:
        """The exposition text."""
        families = self.families()
        if self._reference_names:
            families += under_reference_names(families)
        return generate_latest(_Collected(families))

    def _of_model(self, name: str) -> Histogram:
        return self._families.histograms[name].labels(*self._label_values)


class _Collected(Collector):
    """Families that were read already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns them."""
        return self._families


def _below(folder: str, name: str) -> str:
    return str(Path(folder) / name) if folder else ""
