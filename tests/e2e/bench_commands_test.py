"""`pagemill bench` sweep, startup and throughput with a tiny model, and real servers of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.families.families import make
from tests.families.word_tokenizer import save_tokenizer


def _bench(*argv: str) -> Any:
    command = [sys.executable, "-m", "pagemill.cli", "bench", *argv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _model(folder: Path) -> str:
    folder.mkdir()
    make("llama", folder)
    save_tokenizer(folder)
    return str(folder)


def test_sweep(tmp_path: Path) -> None:
    grid = {
        "server": {
            "model": _model(tmp_path / "model"),
            "cache-dir": str(tmp_path / "cache"),
            "max-num-seqs": [1, 4],
        },
        "load": {"dataset": str(tmp_path / "prompts.jsonl"), "num-prompts": 4},
    }
    lines = [json.dumps({"prompt": f"w8 w6 w{i}", "response": "w5 w6"}) for i in range(5, 11)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    output = tmp_path / "results.jsonl"
    sweep = ("sweep", str(tmp_path / "grid.json"), "-o", str(output), "--num-iters", "1")
    entries = _bench(*sweep)
    assert [entry["server"]["max_num_seqs"] for entry in entries] == [1, 4]
    assert all(entry["runs"] == 1 and entry["output_tokens_per_s"] > 0 for entry in entries)
    assert any(entry["pareto"] for entry in entries)
    assert len(output.read_text().splitlines()) == 2
    assert _bench(*sweep) == entries  # nothing was measured again


def test_throughput_of_a_data_set(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "w8 w6 w5"}, {"from": "gpt", "value": "w5 w6"}]
    longer = [{"from": "human", "value": "w8 w6 w5 w9"}, {"from": "gpt", "value": "w5 w6 w7 w7"}]
    records = [{"conversations": each} for each in (turns, longer, turns * 30)]
    (tmp_path / "share.json").write_text(json.dumps(records))
    options = ("--dataset", str(tmp_path / "share.json"), "--no-limits", "--num-iters", "2")
    report = _bench("throughput", _model(tmp_path / "model"), *options)
    assert report["requests"] == 3
    assert report["input_tokens"] == pytest.approx(2 + (3 + 4 + 3) / 3)  # and [CLS] and [SEP]
    assert report["output_tokens"] == pytest.approx((2 + 4 + 2) / 3)
    assert report["of_them_cached"] == 0  # also in the second run


def test_startup(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    options = ("--cache-dir", str(cache), "--max-model-len", "64", "--num-iters", "1")
    report = _bench("startup", _model(tmp_path / "model"), *options)
    for name in ("cold", "warm"):
        ready, first = (report[f"{name}_{what}_s"]["median"] for what in ("ready", "first_token"))
        assert 0 < ready < first
        assert report[f"{name}_peak_mib"]["median"] > 20
    assert list(cache.iterdir()) == []
