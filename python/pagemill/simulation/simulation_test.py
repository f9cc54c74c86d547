"""Tests of `pagemill simulate` except the engine behind it, which cc/sim tests."""

import json
import math
import sys
from pathlib import Path

import pytest

from pagemill.cli import main
from pagemill.config import ConfigError
from pagemill.simulation.config import SimulatedModel
from pagemill.simulation.model_shape import native_shape, read_model, shape_of, stored_bytes
from pagemill.simulation.plot import hit_percents
from pagemill.simulation.presets import DEVICES, MODELS
from pagemill.simulation.trace import read_trace

SMALL = ("simulate", "smollm2-135m", "--hardware", "cpu-2core", "--num-requests", "40")
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}


def _run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        status = main(argv)
    except SystemExit as stop:
        status = int(stop.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capsys, *SMALL)
    assert (status, err) == (0, "")
    assert out.startswith("smollm2-135m on 1 engine of cpu-2core: 10 requests/s (poisson)\n")
    assert "40 finished, 0 refused, 0 failed" in out
    assert "time to first token" in out


def test_json_is_the_same_for_the_same_options(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (*SMALL, "--engines", "3", "--turns", "4", "--think-time", "1", "--json")
    _, first, _ = _run(capsys, *argv)
    _, second, _ = _run(capsys, *argv)
    _, other, _ = _run(capsys, *argv, "--seed", "1")
    assert first == second != other
    report = json.loads(first)
    assert report["engines"] == 3
    assert report["requests"] == 40
    assert 0 < report["cache_hit_rate"] < 1
    assert report["queueing_ms"]["p50"] <= report["ttft_ms"]["p50"] <= report["e2e_ms"]["p50"]
    assert sum(report["series"]["num_finished"]) == 40
    assert report["refused"] == 0


def test_a_full_queue_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (*SMALL, "--request-rate", "1000", "--max-num-seqs", "2", "--max-num-queued-reqs", "3")
    report = json.loads(_run(capsys, *argv, "--json")[1])
    assert report["refused"] > 20
    assert report["requests"] + report["refused"] == 40


def test_a_model_that_does_not_fit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run(capsys, "simulate", "llama-3.1-70b")
    assert status == 2
    assert "131.41 GiB" in err
    assert "--devices" in err
    assert (
        _run(capsys, "simulate", "llama-3.1-70b", "--devices", "4", "--num-requests", "5")[0] == 0
    )


def test_an_unknown_model_is_named_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run(capsys, "simulate", "lama-3.1-8b")
    assert status == 2
    assert "did you mean 'llama-3.1-8b'?" in err


@pytest.mark.parametrize("name", MODELS)
def test_presets_are_valid(name: str) -> None:
    model = read_model(SimulatedModel(model=name))
    shape = native_shape(model, SimulatedModel(model=name))
    assert shape.weight_bytes == 2 * shape.num_weights
    assert stored_bytes(model, shape) >= shape.weight_bytes


def test_devices_say_where_their_figures_are_from() -> None:
    assert all(device.source for device in DEVICES.values())


def test_a_config_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    model = read_model(SimulatedModel(model=str(tmp_path)))
    assert model.shape.head_size == 16
    assert not model.shape.tied_embeddings
    halved = native_shape(model, SimulatedModel(model="x", weight_bits=8.0))
    assert halved.weight_bytes == halved.num_weights
    assert _run(capsys, "simulate", str(tmp_path), "--num-requests", "3")[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 10**6, "nested too deep"),
        (json.dumps(LLAMA | {"num_hidden_layers": 10**30}), "no num_hidden_layers or n_layer from"),
        (json.dumps(LLAMA | {"head_dim": [64]}), "no head_dim from 1"),
    ],
)
def test_a_config_json_that_lies(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    status, _, err = _run(capsys, "simulate", str(tmp_path))
    assert status in (1, 2) and words in err and err.count("\n") == 1


def test_shapes_that_the_cost_model_does_not_know_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_experts is 8"):
        shape_of(LLAMA | {"num_experts": 8}, "config.json")
    with pytest.raises(ConfigError, match="no hidden_size or n_embd"):
        shape_of({}, "config.json")


def _trace(tmp_path: Path, *rows: dict[str, object]) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_trace_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"timestamp": 1000 * i, "input_length": 900, "output_length": 8, "hash_ids": [7, 10 + i]}
        for i in range(10)
    ]
    argv = ("simulate", "--trace", _trace(tmp_path, *rows), "--json")
    report = json.loads(_run(capsys, *argv)[1])
    assert report["requests"] == 10
    assert report["cache_hit_rate"] == pytest.approx(9 * 512 / 9000)


def test_the_eviction_policy_decides_what_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A prompt comes again and again; in between come prompts that come only once.
    rows = [
        {"timestamp": 10000 * i, "input_length": 900, "output_length": 8, "hash_ids": [ids, ids]}
        for i, ids in enumerate(0 if i % 6 < 2 else i for i in range(60))
    ]
    argv = ("simulate", "smollm2-135m", "--hardware", "cpu-2core", "--max-model-len", "1024")
    argv += ("--trace", _trace(tmp_path, *rows), "--kv-cache-tokens", "3000", "--json")
    rates = [
        json.loads(_run(capsys, *argv, "--eviction", name)[1])["cache_hit_rate"]
        for name in ("lru", "reuse")
    ]
    assert rates[0] < rates[1]
    assert _run(capsys, *argv, "--eviction", "random")[0] == 2


def test_a_bad_trace_names_the_line(tmp_path: Path) -> None:
    good = {"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [1]}
    assert read_trace(_trace(tmp_path, good, {"session": "a"} | good), 512)[1][1] == 1
    with pytest.raises(ConfigError, match=r"trace.jsonl:2: .*stand for 16 tokens"):
        read_trace(_trace(tmp_path, good | {"input_length": 9}, good), 16)
    with pytest.raises(ConfigError, match="hash_ids"):
        read_trace(_trace(tmp_path, {"input_length": 9, "output_length": 1}), 16)
    with pytest.raises(ConfigError, match="no requests"):
        read_trace(_trace(tmp_path), 16)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timestamp", -1),
        ("timestamp", 1e30),
        ("timestamp", float("inf")),
        ("timestamp", float("nan")),
        ("input_length", 0),
        ("output_length", 10**11),
    ],
)
def test_numbers_that_make_no_sense_name_line_and_field(
    field: str, value: float, tmp_path: Path
) -> None:
    good = {"timestamp": 0.5, "input_length": 20, "output_length": 1, "hash_ids": [1]}
    assert read_trace(_trace(tmp_path, good), 512)[0][0] == 500_000
    with pytest.raises(ConfigError, match=rf"trace.jsonl:2: .*{field} is .* must be from"):
        read_trace(_trace(tmp_path, good, good | {field: value}), 512)


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_plots(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    for path in (first, second):
        assert _run(capsys, *SMALL, "--plot", str(path))[0] == 0
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    assert first.read_bytes().startswith(starts[ending])
    assert first.read_bytes() == second.read_bytes()


def test_no_hit_rate_is_drawn_where_no_prompt_came() -> None:
    hits = hit_percents([0.0, 0.0, 6.0, 0.0, 0.0], [0.0, 0.0, 8.0, 0.0, 0.0])
    assert hits[1:4] == [75.0, 75.0, 75.0]
    assert math.isnan(hits[0])
    assert math.isnan(hits[4])


def test_plots_are_refused_before_the_simulation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = _run(capsys, *SMALL, "--plot", "report.gif")
    assert status == 2
    assert ".pdf, .png, .svg" in err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = _run(capsys, *SMALL, "--plot", "report.svg")
    assert status == 1
    assert "pagemill[plot]" in err
