"""Shares of limits, targets, and what did not pass."""

from pathlib import Path

from tools.gpu.results import Result, Results
from tools.gpu.table import table

_LIMITS = {
    "what": "limits",
    "device": "NVIDIA Test",
    "torch": "2",
    "copy_bytes_per_s": 4e12,
    "upload_bytes_per_s": 2e10,
    "flop_per_s": 8e14,
}


def _rows(text: str) -> dict[str, list[str]]:
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}


def test_shares_and_targets(tmp_path: Path):
    results = Results(tmp_path / "results.json")
    results.put("limits/device", Result("passed", 1, [_LIMITS]))
    decode = {"what": "decode", "context": 1024, "tokens_per_s": 250.0}
    records = [
        {
            "what": "ready",
            "built_s": 0.5,
            "engine_s": 3.0,
            "first_token_s": 3.5,
            "weight_bytes": 15e9,
        },
        {"what": "graphs", "graphs": 10, "seconds": 0.6},
        {"what": "memory", "planned": 2**31, "used": 2**30},
        decode | {"batch": 1, "step_s": 0.004, "bytes": 14.4e9},
        decode | {"batch": 64, "step_s": 0.01, "bytes": 20e9},
        {"what": "prefill", "tokens": 1000, "seconds": 0.1, "operations": 64e12},
        {"what": "sampled", "how": "drawn", "batch": 64, "step_s": 0.0051},
        {"what": "scored", "tokens": 1000, "seconds": 0.125},
    ]
    results.put("bf16/anchors", Result("passed", 9, records))
    results.put("host/steps", Result("passed", 1, [{"what": "host", "batch": 1, "host_us": 49.0}]))
    rows = _rows(table(results))
    assert rows["bf16: decoding 1 requests, context 1024"][1:] == ["90%", "85%", "yes"]
    assert rows["bf16: decoding 64 requests, context 1024"][1:] == ["50%", "75%", "**no**"]
    assert rows["bf16: prompt of 1000"][1:] == ["80%", "75%", "yes"]
    assert rows["bf16: 64 requests, drawn"][0] == "5.10 ms a step"
    assert rows["bf16: prompt of 1000 with log probabilities"][0] == "0.125 s"
    assert rows["bf16: recording 20 graphs"][0] == "1.20 s"
    # 15 GB at 20 GB/s, and 3 s.
    assert rows["bf16: ready"][2:] == ["at most 3.8 s", "yes"]
    assert rows["bf16: memory"][0] == "1.00 GiB of 2.00 planned"
    assert rows["host work of a step, 1 requests"][-1] == "yes"


def test_what_did_not_pass(tmp_path: Path):
    results = Results(tmp_path / "results.json")
    results.put("tiny/a/f32", Result("passed"))
    results.put("tiny/b/f32", Result("refused"))
    results.put("conformance/Add", Result("failed"))
    error = {"what": "error", "of": "decode 64", "error": "RuntimeError: no token"}
    results.put("bf16/anchors", Result("failed", 9, [error]))
    text = table(results)
    rows = _rows(text)
    assert rows["tiny models in f32"] == ["1 of 2, 1 refused", "", "all", "yes"]
    assert "tiny models in bf16" not in rows
    assert rows["conformance"] == ["0 of 1", "", "all", "**no**"]
    assert "- conformance, failed: Add\n" in text
    assert "- decode 64: RuntimeError: no token" in text
