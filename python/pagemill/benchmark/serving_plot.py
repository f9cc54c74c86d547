"""The distributions of a load's times, as a picture."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagemill.benchmark.load_generator import RequestTimes
from pagemill.config import ConfigError


def check_plot() -> None:
    """Raises ConfigError, before anything is measured, if nothing could be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: `pip install matplotlib`")


def plot(times: Sequence[RequestTimes], path: Path) -> None:
    """Draws time to first token, between tokens and to the end into a PNG file."""
    # Imported by name: it is not installed for the server, nor where types are checked.
    importlib.import_module("matplotlib").use("Agg")  # no display is needed
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    done = [t for t in times if t.ok]
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    series = {
        "time to first token": [1e3 * (t.first - t.sent) for t in done],
        "time between tokens": [1e3 * gap for t in done for gap in t.gaps],
        "time to the end": [1e3 * (t.last - t.sent) for t in done],
    }
    for axis, (title, values) in zip(axes, series.items(), strict=True):
        ordered = sorted(values)
        shares = [(rank + 1) / len(ordered) for rank in range(len(ordered))]
        axis.plot(ordered, shares)
        axis.set(title=title, xlabel="ms", ylabel="share of requests", ylim=(0, 1))
        axis.grid(alpha=0.3)
    figure.savefig(path)
    pyplot.close(figure)
