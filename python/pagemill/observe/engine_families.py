"""The metrics that the engine keeps, read when Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pagemill.observe.families import MODEL_LABELS, PREFIX
from pagemill.observe.snapshot import Durations, EngineSnapshot, kv_usage, prefix_misses
from pagemill.observe.work_families import ESTIMATES, StepWork


@dataclass(frozen=True, slots=True)
class Derived:
    """A metric that is computed from several of the engine's statistics."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    values: Callable[[EngineSnapshot], Mapping[str, float]]
    """Value by that of `label`."""
    label: str = ""
    """Further label; "" if there is none."""


DERIVED = (
    Derived(
        "kv_cache_usage_perc",
        "gauge",
        "Share of KV blocks in use, 0 to 1.",
        lambda stats: {"": kv_usage(stats)},
    ),
    Derived(
        "prompt_tokens_cached",
        "counter",
        "Prompt tokens that were not computed: found in the prefix cache, or loaded into it.",
        lambda stats: {"": stats.prefix_cache_hit_tokens},
    ),
    Derived(
        "prompt_tokens_by_source",
        "counter",
        "Prompt tokens, by where their KV came from; local_cache_hit includes what was loaded into"
        " the prefix cache.",
        lambda stats: {
            "local_compute": stats.prompt_tokens - stats.prefix_cache_hit_tokens,
            "local_cache_hit": stats.prefix_cache_hit_tokens,
        },
        "source",
    ),
    Derived(
        "prefix_cache_misses",
        "counter",
        "Prompt tokens looked up in the prefix cache and not found. evicted: their KV had been"
        " there and was lately evicted; partial: those behind the last full block, and the last"
        " token, which is always computed; new: the others, never seen or long ago, or with another"
        " salt, adapter or media.",
        prefix_misses,
        "reason",
    ),
    Derived(
        "spec_decode_num_accepted_tokens_per_pos",
        "counter",
        "Draft tokens accepted, by their place among those of a step, from 0.",
        lambda stats: {str(i): n for i, n in enumerate(stats.accepted_drafts_by_position)},
        "position",
    ),
    Derived(
        "engine_sleep_state",
        "gauge",
        "1 for the state that the engine is in.",
        lambda stats: {
            "awake": not stats.asleep,
            "weights_offloaded": stats.asleep,
            "discard_all": False,
        },
        "sleep_state",
    ),
)
CACHE_CONFIG_NAME = "cache_config_info"
CACHE_CONFIG_HELP = "1; the labels are the options of the KV cache, and num_gpu_blocks its size."


class EngineCollector(Collector):
    """Reads the engines' statistics at scrape time; those that cannot be reached have none."""

    def __init__(
        self,
        model_name: str,
        engines: Callable[[], Sequence[EngineSnapshot | None]],
        cache_config: Mapping[str, object],
        work: StepWork | None,
    ) -> None:
        """`engines`: the statistics of each, by its number, which is the label `engine`.
        `cache_config`: the options of the KV cache, by name. `work`: of the model, for estimates;
        without it there are none."""
        self._model_name = model_name
        self._engines = engines
        self._work = work
        self._cache_config = {name: str(value) for name, value in cache_config.items()}

    def collect(self) -> Iterator[Metric]:
        """Yields the families whose values engines keep."""
        found = {number: stats for number, stats in enumerate(self._engines()) if stats is not None}
        if not found:
            return
        for row in DERIVED:
            values = {number: row.values(stats) for number, stats in found.items()}
            yield self._family(row.kind, row.name, row.help, values, row.label)
        if (work := self._work) is not None:
            for row in ESTIMATES:
                values = {number: {"": row.total(stats, work)} for number, stats in found.items()}
                yield self._family("counter", row.name, row.help, values)
        for name, kind, family, text in next(iter(found.values())).fields:
            if not family:
                continue
            sentence = f"{text[:1].upper()}{text[1:]}."
            statistic = {number: getattr(stats, name) for number, stats in found.items()}
            if kind == "histogram":
                yield from self._histogram(family, sentence, statistic)
            else:
                values = {number: {"": value} for number, value in statistic.items()}
                yield self._family(kind, family, sentence, values)
        # The name that readers of the reference system's metric look for, whatever the device.
        labels = (*MODEL_LABELS, *self._cache_config, "num_gpu_blocks")
        info = GaugeMetricFamily(PREFIX + CACHE_CONFIG_NAME, CACHE_CONFIG_HELP, labels=labels)
        for number, stats in found.items():
            options = [*self._cache_config.values(), str(stats.kv_blocks_total)]
            info.add_metric([self._model_name, str(number), *options], 1)
        yield info

    def describe(self) -> Iterable[Metric]:
        """Declares no metrics in advance: registration must not call the engine."""
        return ()

    def _family(
        self,
        kind: str,
        name: str,
        text: str,
        engines: Mapping[int, Mapping[str, float]],
        label: str = "",
    ) -> Metric:
        make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
        family = make(PREFIX + name, text, labels=(*MODEL_LABELS, label) if label else MODEL_LABELS)
        for number, values in engines.items():
            own = [self._model_name, str(number)]
            for key, value in values.items():
                family.add_metric([*own, key] if label else own, float(value))
        return family

    def _histogram(
        self, name: str, text: str, engines: Mapping[int, Durations]
    ) -> Iterator[Metric]:
        """The family of those that measure, if any does."""
        measured = {number: durations for number, durations in engines.items() if durations.counts}
        if not measured:
            return
        family = HistogramMetricFamily(PREFIX + name, text, labels=MODEL_LABELS)
        for number, durations in measured.items():
            bounds = (*map(str, durations.bounds_s), "+Inf")
            buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
            family.add_metric([self._model_name, str(number)], buckets, durations.sum_s)
        yield family
