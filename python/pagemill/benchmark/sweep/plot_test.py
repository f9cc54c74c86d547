"""The picture of a sweep."""

from pathlib import Path

import pytest

from pagemill.benchmark.sweep.plot import check_plot, plot
from pagemill.benchmark.sweep.summary import LATENCY, THROUGHPUT, Combination
from pagemill.config import ConfigError


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_plots(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"sweep.{ending}"
    check_plot(str(path))
    points = [(10.0, 5.0, True), (20.0, 9.0, True), (30.0, 7.0, False)]
    combinations = [
        Combination({"a": i}, {"b": i}, 1, 0, {LATENCY: x, THROUGHPUT: y}, front)
        for i, (x, y, front) in enumerate(points)
    ]
    plot([*combinations, Combination({"a": 1}, {"b": 9}, 0, 0, {}, False)], str(path))
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(starts[ending])
    if ending == "svg":
        assert "Pareto front" in path.read_text()


def test_another_ending_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\.pdf, \.png, \.svg"):
        check_plot("sweep.gif")
