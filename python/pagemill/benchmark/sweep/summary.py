"""What came of a sweep: medians of each combination, and which of them no other one beats."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pagemill.benchmark.sweep.grid import Grid, Options, Run
from pagemill.benchmark.sweep.results import Results

THROUGHPUT = "output_tokens_per_s"
LATENCY = "e2e_ms_p50"

# Column title -> path into the report of a run.
_METRICS = {
    "requests_per_s": ("requests_per_s",),
    THROUGHPUT: ("output_tokens_per_s",),
    "ttft_ms_p50": ("ttft_ms", "p50"),
    "ttft_ms_p99": ("ttft_ms", "p99"),
    "tpot_ms_p50": ("tpot_ms", "p50"),
    LATENCY: ("e2e_ms", "p50"),
}

_TITLES = ("runs", "failed", "req/s", "tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "E2E p50")
_LEGEND = (
    "Medians of the runs; times in ms. *: no other line has more tok/s without a longer time to the"
    " end (E2E)."
)


@dataclass(frozen=True, slots=True)
class Combination:
    """The runs of one load on one server. `medians` has the metrics that at least one run has;
    `is_pareto` is True if it is on the Pareto front of throughput over latency."""

    server: Options
    load: Options
    runs: int
    failed_requests: int
    medians: dict[str, float]
    is_pareto: bool

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of `--json`."""
        return {
            "server": self.server,
            "load": self.load,
            "runs": self.runs,
            "failed_requests": self.failed_requests,
            **{name: self.medians.get(name) for name in _METRICS},
            "pareto": self.is_pareto,
        }


def summarize(grid: Grid, results: Results) -> list[Combination]:
    """Returns every combination of the grid in its order, those without results included."""
    found: list[tuple[Options, Options, list[dict[str, Any]]]] = []
    for server in grid.servers:
        for load in grid.loads:
            runs = (Run(server, load, repeat) for repeat in range(grid.repeats))
            found.append((server, load, results.of(runs)))
    medians = [_medians(reports) for _, _, reports in found]
    front = pareto_front([(each.get(LATENCY), each.get(THROUGHPUT)) for each in medians])
    return [
        Combination(
            server,
            load,
            len(reports),
            sum(r.get("failed", 0) for r in reports),
            medians[i],
            i in front,
        )
        for i, (server, load, reports) in enumerate(found)
    ]


def pareto_front(points: Sequence[tuple[float | None, float | None]]) -> set[int]:
    """Returns the indices of points (latency, throughput) that no other point beats in one without
    being worse in the other. Points with None are not part of it."""
    known = [(x, -y, i) for i, (x, y) in enumerate(points) if x is not None and y is not None]
    front: set[int] = set()
    best: tuple[float, float] | None = None
    for latency, negated, index in sorted(known):
        if best is None or negated < best[1]:
            best = (latency, negated)
        if best == (latency, negated):  # equal points are all part of it
            front.add(index)
    return front


def varied(options: Sequence[Options]) -> list[str]:
    """Returns the names that do not have the same value in all of `options`."""
    return [name for name in options[0] if any(o[name] != options[0][name] for o in options)]


def table(combinations: Sequence[Combination]) -> str:
    """Returns the table for people: a line for each combination, with the options that differ."""
    of_server = varied([each.server for each in combinations])
    of_load = varied([each.load for each in combinations])
    options = [name.replace("_", "-") for name in (*of_server, *of_load)]
    lines = [["", *options, *_TITLES]]
    for each in combinations:
        lines.append(
            [
                "*" if each.is_pareto else "",
                *(str(each.server[name]) for name in of_server),
                *(str(each.load[name]) for name in of_load),
                str(each.runs),
                str(each.failed_requests),
                *(_short(each.medians.get(metric)) for metric in _METRICS),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([*shown, "", _LEGEND])


def _medians(reports: Sequence[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, path in _METRICS.items():
        values = [value for r in reports if (value := _metric(r, path)) is not None]
        if values:
            found[name] = statistics.median(values)
    return found


def _metric(report: dict[str, Any], path: Sequence[str]) -> float | None:
    value: Any = report
    for key in path:  # a report of another version may lack it
        value = cast(dict[str, Any], value).get(key) if isinstance(value, dict) else None
    return value if isinstance(value, (int, float)) else None


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
