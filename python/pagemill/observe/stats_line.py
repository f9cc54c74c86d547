"""A line about the last seconds, written while there is work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pagemill.observe.snapshot import EngineSnapshot, hit_rate, kv_usage

_LOGGER = logging.getLogger("pagemill.stats")


class StatsLine:
    """Stores the last counters, so that rates cover the time since the last line."""

    def __init__(
        self, stats: Callable[[], EngineSnapshot], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._stats = stats
        self._now = now
        self._at = now()
        self._prompt = 0
        self._generated = 0

    def text(self) -> str | None:
        """The line for the time since the last call; None if nothing happened."""
        stats, now = self._stats(), self._now()
        elapsed = max(now - self._at, 1e-9)
        prompt = (stats.prompt_tokens - self._prompt) / elapsed
        generated = (stats.generation_tokens - self._generated) / elapsed
        self._at, self._prompt, self._generated = now, stats.prompt_tokens, stats.generation_tokens
        if prompt == generated == 0 and stats.num_running == stats.num_waiting == 0:
            return None
        return (
            f"prompt {prompt:.1f} tok/s, generation {generated:.1f} tok/s,"
            f" running {stats.num_running}, waiting {stats.num_waiting},"
            f" KV cache {kv_usage(stats):.1%}, prefix cache hits {hit_rate(stats):.1%}"
        )

    def log(self) -> None:
        """Writes the line, if there is one."""
        line = self.text()
        if line is not None:
            _LOGGER.info("%s", line)
