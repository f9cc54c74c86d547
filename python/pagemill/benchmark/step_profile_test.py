"""Parts of a step, from sums over many."""

from types import SimpleNamespace
from typing import Any

import pytest

from pagemill.benchmark.step_profile import RunProfile, layers_of, parts_of


def _op(**changes: Any) -> SimpleNamespace:
    base: dict[str, Any] = {
        "op": "linear",
        "matrix": "q4_1[96,64]",
        "kernel": "portable",
        "calls": 8,
        "seconds": 0.6,
        "waited_s": 0.12,
        "bytes": 1.2e9,
        "operations": 3e9,
    }
    return SimpleNamespace(**{**base, **changes})


def _profile(**changes: Any) -> Any:
    base: dict[str, Any] = {
        "num_threads": 2,
        "steps": 4,
        "batch_s": 0.1,
        "model_s": 0.8,
        "sampling_s": 0.06,
        "between_s": 0.04,
        "ops": [_op(), _op(op="add", matrix="", seconds=0.1, bytes=0.0, operations=0.0)],
        "layers": [
            SimpleNamespace(layer="layer.0", seconds=0.4),
            SimpleNamespace(layer="layer.1", seconds=0.2),
            SimpleNamespace(layer="end", seconds=0.1),
        ],
    }
    return SimpleNamespace(**{**base, **changes})


def test_shares_are_of_the_time_from_step_to_step() -> None:
    parts = {part.part: part for part in parts_of(_profile())}
    assert sum(part.share for part in parts.values()) == pytest.approx(1)
    assert sum(part.ms for part in parts.values()) == pytest.approx(250)
    linear = parts["linear"]
    assert (linear.calls, linear.ms) == (2, pytest.approx(150))
    assert linear.gb_per_s == pytest.approx(2)
    assert linear.gflop_per_s == pytest.approx(5)
    assert linear.waiting == pytest.approx(0.1)  # 0.12 s of twice 0.6 s
    assert parts["walk"].waiting is None
    assert parts["add"].gflop_per_s is None
    assert parts["walk"].ms == pytest.approx(25)  # of the model, what no op took


def test_an_executor_that_tells_nothing_of_ops_is_one_part() -> None:
    names = [part.part for part in parts_of(_profile(ops=[]))]
    assert names == ["model", "batch", "sampling", "between"]


def test_kinds_of_step_that_did_not_run_are_left_out_of_the_table() -> None:
    profiles = {True: _profile(), False: _profile(steps=0, layers=[])}
    runner: Any = SimpleNamespace(profile=lambda *, decode: profiles[decode])
    table = RunProfile(runner).table("ops")
    assert table.startswith("4 steps with a token a request")
    assert "prompts" not in table
    assert RunProfile(runner).as_json()["prompt"] == {
        "steps": 0,
        "parts": [],
        "layers": [],
    }


def test_layers() -> None:
    layers = layers_of(_profile())
    assert [layer.layer for layer in layers] == ["layer.0", "layer.1", "end"]
    assert [layer.ms for layer in layers] == pytest.approx([100, 50, 25])
    assert sum(layer.share for layer in layers) == pytest.approx(1)
    runner: Any = SimpleNamespace(
        profile=lambda *, decode: _profile(layers=[]) if decode else _profile()
    )
    first, *rows, last = RunProfile(runner).table("layers").splitlines()
    assert "prompts" in first, "the other kind has none"
    assert rows[0].endswith("#" * 40) and rows[1].endswith(" " + "#" * 20)
    assert last.split() == ["all", "175.000", "ms"]
