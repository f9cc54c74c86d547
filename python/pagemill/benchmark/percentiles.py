"""Summaries of measured times."""

import math
from collections.abc import Sequence

PERCENTS = (50, 90, 95, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the value below which `percent` of `values` lie, interpolated; NaN for none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Returns mean and percentiles of times in seconds, in milliseconds; None if there are none.

    Keys: "mean", "p50", "p90", "p95", "p99", "max".
    """
    if not values:
        return dict.fromkeys(["mean", *(f"p{p}" for p in PERCENTS), "max"])
    found: dict[str, float | None] = {"mean": 1e3 * math.fsum(values) / len(values)}
    found.update({f"p{p}": 1e3 * percentile(values, p) for p in PERCENTS})
    found["max"] = 1e3 * max(values)
    return found
