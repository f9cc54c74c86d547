"""Metrics as plain values, for the process that has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric

from pagemill.observe import restarts
from pagemill.observe.families import PREFIX

_OF_SERVERS = frozenset(PREFIX + name for name in (restarts.NAME, "requests_turned_away"))


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that only grows. `name` is that of docs/metrics.md, with the prefix."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number of this moment."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values there were, their sum, and how many were at most each upper bound; the last
    bound is "+Inf"."""

    name: str
    labels: dict[str, str]
    count: int
    sum: float
    buckets: dict[str, int]


Reading = Counter | Gauge | Histogram


def readings(families: Iterable[Metric]) -> list[Reading]:
    """The metrics of `families` that have Pagemill's prefix and a value, except those that only a
    server counts without a request."""
    found: list[Reading] = []
    for family in families:
        if family.name.startswith(PREFIX) and family.name not in _OF_SERVERS:
            found += _of_family(family)
    return found


def _of_family(family: Metric) -> Iterator[Reading]:
    if family.type == "histogram":
        yield from _histograms(family)
    elif family.type in ("counter", "gauge"):
        kind = Counter if family.type == "counter" else Gauge
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                yield kind(family.name, dict(sample.labels), sample.value)


def _histograms(family: Metric) -> Iterator[Histogram]:
    values: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        suffix = sample.name.removeprefix(family.name)
        key = labels.pop("le", suffix)
        values.setdefault(tuple(labels.items()), {})[key] = sample.value
    for labels, found in values.items():
        count, total = int(found.pop("_count")), found.pop("_sum")
        found.pop("_created", None)
        buckets = {bound: int(value) for bound, value in found.items()}
        yield Histogram(family.name, dict(labels), count, total, buckets)
