"""The engine's state as metrics and the statistics line need it."""

from __future__ import annotations

from typing import Protocol


class EngineSnapshot(Protocol):
    """Fields of the native EngineStats; counters only grow, durations are in seconds."""

    num_running: int
    num_waiting: int
    kv_blocks_total: int
    kv_blocks_used: int
    num_steps: int
    num_failed_steps: int
    num_preemptions: int
    prefix_cache_query_tokens: int
    prefix_cache_hit_tokens: int
    prompt_tokens: int
    generation_tokens: int
    num_refused: int
    progress_age_s: float


def kv_usage(stats: EngineSnapshot) -> float:
    """Share of the KV blocks that requests hold, 0 to 1."""
    return stats.kv_blocks_used / stats.kv_blocks_total if stats.kv_blocks_total else 0.0


def hit_rate(stats: EngineSnapshot) -> float:
    """Share of looked-up prompt tokens that the prefix cache had, 0 to 1."""
    queries = stats.prefix_cache_query_tokens
    return stats.prefix_cache_hit_tokens / queries if queries else 0.0
