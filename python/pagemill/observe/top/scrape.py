"""One answer of a server's `/metrics`, as numbers by name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from pagemill.observe.families import PREFIX

Buckets = Mapping[float, float]
"""Observations at most as large as each upper bound, of a histogram."""

_GROWING = ("_total", "_count", "_bucket", "_sum")


class Scrape:
    """The families of the server itself, without their prefix; those of its process are left out.

    A family that is missing counts as zero: servers do not all have all.
    """

    def __init__(self, text: str, at: float) -> None:
        """Parses `text`, which was read at `at` (`time.monotonic()`).

        Raises:
            ValueError: it is not in Prometheus' text format, or a value is not a number.
        """
        self.at = at
        self._series: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(PREFIX):
                continue
            for sample in family.samples:
                series = self._series.setdefault(sample.name.removeprefix(PREFIX), {})
                value = float(sample.value)
                if not math.isfinite(value):
                    raise ValueError(f"{sample.name} is {value}")
                series[tuple(sorted(sample.labels.items()))] = value

    def __contains__(self, name: str) -> bool:
        return name in self._series

    @property
    def model(self) -> str:
        """The name of the model; "" while it is being loaded."""
        for labels in self._series.get("num_requests_running", {}):
            return dict(labels).get("model_name", "")
        return ""

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(self._series.get(name, {}).values())

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums by the value of a label."""
        found: dict[str, float] = {}
        for labels, value in self._series.get(name, {}).items():
            key = dict(labels).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found

    def buckets(self, name: str) -> Buckets:
        """The buckets of a histogram.

        Raises:
            ValueError: a bound is not a number.
        """
        found = self.by(f"{name}_bucket", "le")
        return {float(bound): count for bound, count in found.items() if bound}

    def continues(self, earlier: Scrape) -> bool:
        """False if a count is smaller than `earlier`: the server was started again."""
        for name, series in self._series.items():
            if not name.endswith(_GROWING):
                continue
            before = earlier._series.get(name, {})
            if any(value < before.get(labels, -math.inf) for labels, value in series.items()):
                return False
        return True


def quantile(share: float, earlier: Buckets, later: Buckets) -> float | None:
    """The value that `share` of the observations between two scrapes do not exceed.

    Interpolates within a bucket as Prometheus' `histogram_quantile`; the last bucket, which has no
    upper bound, counts as the largest bound. None if nothing was observed.
    """
    bounds = sorted(later)
    counts = [later[bound] - earlier.get(bound, 0.0) for bound in bounds]
    if not counts or counts[-1] <= 0:
        return None
    rank = share * counts[-1]
    low, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank and count > below:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low
