"""Goodput: the requests that were as fast as their users need (arXiv 2401.09670)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagemill.benchmark.load_generator import RequestTimes
from pagemill.config import ConfigError

METRICS = ("ttft", "tpot", "e2e")

Goals = Mapping[str, float]
"""The longest time of each metric in seconds."""


def parse_goals(texts: Sequence[str]) -> Goals:
    """Returns the goals in texts such as "ttft:500", in milliseconds.

    Raises:
      ConfigError: one is not such a goal, or a metric has two.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition(":")
        try:
            longest_ms = float(value)
        except ValueError:
            longest_ms = 0.0
        if name not in METRICS or not 0 < longest_ms < 1e9:
            raise ConfigError(
                f"--goodput: {text!r} is not a metric and its milliseconds, as ttft:500; metrics:"
                f" {', '.join(METRICS)}"
            )
        if name in found:
            raise ConfigError(f"--goodput: {name} is given twice")
        found[name] = longest_ms / 1e3
    return found


def meets(times: RequestTimes, goals: Goals) -> bool:
    """True if a request has ended within all goals. What has one token has no time for each."""
    tokens = times.output_tokens
    measured = {
        "ttft": times.first - times.sent,
        "tpot": (times.last - times.first) / (tokens - 1) if tokens > 1 else 0.0,
        "e2e": times.last - times.sent,
    }
    return times.ok and all(measured[name] <= longest for name, longest in goals.items())
