"""The engine's state for metrics and the statistics line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol


class Durations(Protocol):
    """The interface of the native DurationHistogram."""

    @property
    def bounds_s(self) -> tuple[float, ...]:
        """Upper bounds of the buckets in seconds, each included."""
        ...

    @property
    def counts(self) -> Sequence[int]:
        """Of each bucket, and of what exceeds all bounds; empty if nothing is measured."""
        ...

    @property
    def sum_s(self) -> float: ...


class EngineSnapshot(Protocol):
    """The interface of the native EngineStats: a table of all statistics, and each by name.

    Lists the ones that Python reads; counters only grow, durations are in seconds.
    """

    fields: ClassVar[Sequence[tuple[str, str, str, str]]]
    """(name, kind, Prometheus family or "", help) of each statistic; a kind is "gauge", "counter",
    "histogram", or "counters" of a list."""

    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def kv_blocks_total(self) -> int: ...
    @property
    def kv_blocks_used(self) -> int: ...
    @property
    def prefix_cache_query_tokens(self) -> int: ...
    @property
    def prefix_cache_hit_tokens(self) -> int: ...
    @property
    def prefix_cache_evicted_tokens(self) -> int: ...
    @property
    def prefix_cache_partial_tokens(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generation_tokens(self) -> int: ...
    @property
    def accepted_drafts_by_position(self) -> Sequence[int]: ...
    @property
    def draft_tokens(self) -> int: ...
    @property
    def accepted_draft_tokens(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def asleep(self) -> bool: ...
    @property
    def progress_age_s(self) -> float: ...


class SummedSnapshot:
    """Several engines as one. Numbers are sums; it sleeps if all do, and its progress is that of
    the engine that makes most. Histograms and lists are those of the engines alone: it has none."""

    def __init__(self, parts: Sequence[EngineSnapshot]) -> None:
        """`parts`: one at least, of engines with the same statistics."""
        self.fields = [row for row in parts[0].fields if row[1] in ("gauge", "counter")]
        for name, *_ in self.fields:
            setattr(self, name, sum(getattr(part, name) for part in parts))
        self.asleep = all(part.asleep for part in parts)
        self.progress_age_s = min(part.progress_age_s for part in parts)


def kv_usage(stats: EngineSnapshot) -> float:
    """Share of the KV blocks that requests hold, 0 to 1."""
    return stats.kv_blocks_used / stats.kv_blocks_total if stats.kv_blocks_total else 0.0


def prefix_misses(stats: EngineSnapshot) -> dict[str, int]:
    """Looked-up prompt tokens that were not in the prefix cache, by the reason."""
    missed = stats.prefix_cache_query_tokens - stats.prefix_cache_hit_tokens
    evicted, partial = stats.prefix_cache_evicted_tokens, stats.prefix_cache_partial_tokens
    return {"evicted": evicted, "partial": partial, "new": missed - evicted - partial}


def hit_rate(stats: EngineSnapshot) -> float:
    """Share of looked-up prompt tokens found in the prefix cache, 0 to 1."""
    queries = stats.prefix_cache_query_tokens
    return stats.prefix_cache_hit_tokens / queries if queries else 0.0
