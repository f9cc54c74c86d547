"""Draws a simulation with matplotlib, which `pip install 'pagemill[plot]'` brings."""

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagemill.config import ConfigError

FORMATS = (".pdf", ".png", ".svg")


def check_plot(path: str) -> None:
    """Checks that `plot` will be able to write the file, before anything is simulated.

    Raises:
      ConfigError: the ending is not one of FORMATS.
      ImportError: matplotlib is missing.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot: {path!r} does not end in one of {', '.join(FORMATS)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ImportError(
            "--plot needs matplotlib: pip install 'pagemill[plot]', or pip install matplotlib"
        ) from None


def plot(found: Mapping[str, Any], title: str, path: str) -> None:
    """Draws latency distributions, and queue, throughput and cache hits over time.

    Args:
      found: what `Simulator.report()` returned.
      title: what was simulated, in a line.
      path: where to; its ending says in which format.

    Raises:
      OSError: the file cannot be written.
    """
    # Types of an optional library are not checked.
    matplotlib: Any = importlib.import_module("matplotlib")
    # The file is the same for the same simulation: no date, and no random ids in SVG.
    matplotlib.rcParams["svg.hashsalt"] = "pagemill"
    figure: Any = importlib.import_module("matplotlib.figure").Figure(
        figsize=(11, 8), layout="constrained"
    )
    figure.suptitle(title)
    axes = figure.subplots(2, 2)
    _distribution(axes[0][0], found, "ttft", "time to first token")
    _distribution(axes[0][1], found, "itl", "time between tokens")
    _requests(axes[1][0], found)
    _rates(axes[1][1], found)
    kind = Path(path).suffix.lower()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[kind]
    figure.savefig(path, metadata=metadata)


def _distribution(axes: Any, found: Mapping[str, Any], name: str, label: str) -> None:
    buckets = found[name]["buckets"]
    total, seen = max(1, found[name]["count"]), 0
    xs: list[float] = []
    ys: list[float] = []
    for low, high, count in buckets:
        xs += [low / 1e6, high / 1e6]
        ys += [seen / total, (seen + count) / total]
        seen += count
    axes.plot(xs, ys)
    if xs and xs[-1] > 0:
        axes.set_xscale("log")
    for percent in (50, 99):
        axes.axhline(percent / 100, color="0.8", linewidth=0.8)
        axes.annotate(
            f"p{percent} {found[name][f'p{percent}'] / 1e6:,.1f} ms",
            (0.02, percent / 100),
            xycoords=("axes fraction", "data"),
            va="bottom" if percent < 99 else "top",
        )
    axes.set(xlabel=f"{label}, ms", ylabel="share of all", ylim=(0, 1.01))


def _times(found: Mapping[str, Any]) -> list[float]:
    width = found["series"]["width_ns"] / 1e9
    return [width * (i + 0.5) for i in range(len(found["series"]["waiting"]))]


def _requests(axes: Any, found: Mapping[str, Any]) -> None:
    axes.plot(_times(found), found["series"]["waiting"], label="waiting")
    axes.plot(_times(found), found["series"]["running"], label="running")
    axes.set(xlabel="simulated time, s", ylabel="requests", ylim=(0, None))
    axes.legend()


def hit_percents(cached: list[float], prompt: list[float]) -> list[float]:
    """Returns which percentage of the prompt tokens around each interval were cached.

    Counted over a twentieth of the time, since few prompts may come in one interval; not a number,
    which leaves a gap in the line, where none came.
    """
    reach = max(1, len(prompt) // 40)
    hits: list[float] = []
    for i in range(len(prompt)):
        window = slice(max(0, i - reach), i + reach + 1)
        total = sum(prompt[window])
        hits.append(100 * sum(cached[window]) / total if total > 0 else math.nan)
    return hits


def _rates(axes: Any, found: Mapping[str, Any]) -> None:
    series = found["series"]
    hits = hit_percents(series["cached_tokens"], series["prompt_tokens"])
    engines = found["num_engines"]
    blocks = max(1, engines * found["kv_blocks_each"])
    axes.plot(_times(found), hits, label="prompt tokens found in the cache")
    axes.plot(
        _times(found), [100 * n / engines for n in series["engines_busy"]], label="engines busy"
    )
    axes.plot(
        _times(found), [100 * n / blocks for n in series["kv_blocks_used"]], label="KV blocks used"
    )
    axes.set(xlabel="simulated time, s", ylabel="%", ylim=(0, 101))
    axes.legend()
