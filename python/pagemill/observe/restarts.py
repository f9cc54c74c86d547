"""How often processes of the server were started again: the supervisor counts, the others read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from pagemill.observe.families import PREFIX

NAME = "process_restarts"
HELP = (
    "Processes of the server that ended or were stuck and were started again. 0 if the server"
    " is one process."
)
LABEL = "process"
_KINDS = ("engine", "api")
_FILE = "restarts.json"


class RestartCounts:
    """Counts in a file of `folder`, for the other processes."""

    def __init__(self, folder: str) -> None:
        """Writes zeros."""
        self._path = Path(folder) / _FILE
        self._counts: dict[str, int] = dict.fromkeys(_KINDS, 0)
        self._write()

    def add(self, kind: str) -> None:
        """Counts a process of `kind`, "engine" or "api"."""
        self._counts[kind] += 1
        self._write()

    def _write(self) -> None:
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(self._counts), encoding="utf-8")
        os.replace(written, self._path)


class RestartCollector(Collector):
    """Reads the counts at scrape time; zeros without a `folder`."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / _FILE if folder else None

    def collect(self) -> Iterator[Metric]:
        """Yields the family."""
        counts: dict[str, int] = dict.fromkeys(_KINDS, 0)
        if self._path is not None:
            counts = json.loads(self._path.read_text(encoding="utf-8"))
        family = CounterMetricFamily(PREFIX + NAME, HELP, labels=(LABEL,))
        for kind, count in counts.items():
            family.add_metric([kind], count)
        yield family

    def describe(self) -> Iterable[Metric]:
        """Declares no metrics in advance."""
        return ()
