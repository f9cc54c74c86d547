"""Throughput over latency of a sweep's combinations, as a picture."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagemill.benchmark import serving_plot
from pagemill.benchmark.sweep.grid import Options
from pagemill.benchmark.sweep.summary import LATENCY, THROUGHPUT, Combination, varied
from pagemill.config import ConfigError

FORMATS = (".pdf", ".png", ".svg")
_MAX_LABELS = 24  # more would cover each other


def check_plot(path: str) -> None:
    """Raises ConfigError, before anything is measured, if nothing could be drawn into `path`."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot: {path!r} does not end in one of {', '.join(FORMATS)}")
    serving_plot.check_plot()


def plot(combinations: Sequence[Combination], path: str) -> None:
    """Draws a point for each combination that was measured, one colour for each server, and a line
    through those of the Pareto front.

    Raises:
      OSError: the file cannot be written.
    """
    # Imported by name: it is not installed for the server, nor where types are checked.
    figure: Any = importlib.import_module("matplotlib.figure").Figure(
        figsize=(9, 6), layout="constrained"
    )
    axes = figure.subplots()
    shown = [each for each in combinations if LATENCY in each.medians]
    names = varied([each.server for each in combinations])
    by_server: dict[str, list[Combination]] = {}
    for each in shown:
        by_server.setdefault(_label(each.server, names), []).append(each)
    for label, of_server in by_server.items():
        axes.scatter(
            [each.medians[LATENCY] for each in of_server],
            [each.medians[THROUGHPUT] for each in of_server],
            label=label or "server",
        )
    front = sorted((c.medians[LATENCY], c.medians[THROUGHPUT]) for c in shown if c.is_pareto)
    axes.plot([x for x, _ in front], [y for _, y in front], color="0.4", label="Pareto front")
    if len(shown) <= _MAX_LABELS:
        names = varied([each.load for each in combinations])
        for each in shown:
            at = (each.medians[LATENCY], each.medians[THROUGHPUT])
            offset = {"xytext": (4, 4), "textcoords": "offset points"}
            axes.annotate(_label(each.load, names), at, fontsize="small", **offset)
    axes.set(xlabel="median time to the end of a request, ms", ylabel="output tokens per second")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def _label(options: Options, names: Sequence[str]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {options[name]}" for name in names)
