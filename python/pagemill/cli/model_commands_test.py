"""The commands that load a model, on the default model's file.

PAGEMILL_TEST_SMOLLM2_GGUF names it; outside Bazel the tests are skipped without it.
"""

import errno
import io
import json
import os
import time
from pathlib import Path

import pytest

from pagemill.cli import main
from pagemill.cli.export import with_weights
from pagemill.cli.local_text import LocalText
from pagemill.config import EngineConfig, ModelConfig, SamplingConfig
from pagemill.engine.outputs import EngineError

GREEDY = ("--temperature", "0", "--max-tokens", "24")
FRANCE = "What is the capital of France?"


@pytest.fixture(name="model", scope="module")
def _model() -> str:
    value = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF")
    if value is None:
        assert "TEST_SRCDIR" not in os.environ, "the BUILD file does not name the model"
        pytest.skip("PAGEMILL_TEST_SMOLLM2_GGUF is not set")
    return value


def _run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_generate(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("Name a colour.\n\n")
    argv = ("generate", model, "-p", FRANCE, "--prompts-file", str(file), *GREEDY, "--json")
    status, out, _ = _run(capsys, *argv)
    assert status == 0
    first, second = (json.loads(line) for line in out.splitlines())
    assert "Paris" in first["text"]
    assert first["finish_reason"] == "stop"
    assert second["prompt"] == "Name a colour."
    assert 0 < second["output_tokens"] <= 24


def test_stop_strings_end_one_prompt_and_not_the_others(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("generate", model, "-p", FRANCE, "-p", "Name a colour.", *GREEDY)
    _, plain, _ = _run(capsys, *argv)
    status, stopped, _ = _run(capsys, *argv, "--stop", " is Paris")
    assert status == 0
    first, _, second = plain.partition("\n")
    assert "is Paris" in first
    assert stopped == first.partition(" is Paris")[0] + "\n" + second


def test_chat_and_complete(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, _ = _run(capsys, "chat", model, "-q", FRANCE, *GREEDY)
    assert (status, "Paris" in out) == (0, True)
    monkeypatch.setattr("sys.stdin", io.StringIO("One, two, three,"))
    status, out, _ = _run(capsys, "complete", model, "-q", "-", *GREEDY)
    assert (status, "four" in out) == (0, True)


def test_conversation(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [FRANCE, "/help", "And of Italy?", "/reset", FRANCE, "/quit"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    status, out, err = _run(capsys, "chat", model, *GREEDY)
    assert status == 0
    assert err.count("/reset  forget") == 2
    first, second, again = (answer for answer in out.split("> ") if answer.strip())
    assert "Paris" in first
    assert "Rome" in second
    assert again == first  # nothing of before was remembered


def test_too_long_a_wish_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run(capsys, "chat", model, "-q", "Hi", "--max-tokens", "9000")
    assert status == 1
    assert "8192" in err
    assert err.startswith("pagemill chat: ") and "INVALID_ARGUMENT" not in err
    assert "Traceback" not in err


def test_streams_follow_each_other(model: str) -> None:
    local = LocalText.load(EngineConfig(model=ModelConfig(model=model)))
    try:
        sampling = SamplingConfig(temperature=0.0, max_tokens=48)
        pieces = list(local.complete("The sky is", sampling))
        assert len(pieces) > 3  # streamed, not at once
        # An abandoned stream leaves nothing behind that disturbs the next.
        next(iter(local.complete("Once upon a time", sampling)))
        assert "".join(local.complete("The sky is", sampling)) == "".join(pieces)
        seeded = SamplingConfig(temperature=1.0, seed=7, max_tokens=48)
        first = "".join(local.complete("The sky is", seeded))
        assert "".join(local.complete("The sky is", seeded)) == first != "".join(pieces)
        stopped = SamplingConfig(temperature=0.0, max_tokens=48, stop=(pieces[2],))
        cut = "".join(local.complete("The sky is", stopped))
        assert cut == "".join(pieces).partition(pieces[2])[0]
        with pytest.raises(EngineError, match="empty"):
            list(local.complete("", sampling))
    finally:
        local.close()


def test_plan(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = _run(capsys, "plan", model, "--json", "--max-model-len", "4K")
    plan = json.loads(out)
    assert status == 0
    assert plan["fits"]
    assert plan["max_model_len"] == 4096
    # 30 layers x (keys and values) x 3 heads x 64 x 2 bytes.
    assert plan["bytes"]["kv_per_token"] == 30 * 2 * 3 * 64 * 2
    assert plan["kv_cache_tokens"] == 11008
    assert plan["concurrency"] == 2
    # The file without its metadata: nothing is expanded.
    assert 0.9 < plan["bytes"]["weights"] / os.path.getsize(model) <= 1.05
    assert plan["sampling_defaults"]["defaults"]["temperature"] == 0.2
    tier = ("--max-model-len", "4K", "--kv-offloading-bytes", "64MiB")
    status, out, _ = _run(capsys, "plan", model, "--json", *tier)
    assert json.loads(out)["bytes"]["total"] == plan["bytes"]["total"] + 64 * 2**20
    drafts = ("--max-model-len", "4K", "--speculative-config", json.dumps({"model": model}))
    status, out, _ = _run(capsys, "plan", model, "--json", *drafts)
    twice = json.loads(out)["bytes"]  # the model drafts for itself
    assert status == 0
    for name in ("weights", "kv_per_token"):
        assert twice[name] == 2 * plan["bytes"][name]
    status, out, _ = _run(capsys, "plan", model, "--kv-cache-memory-bytes", "10MiB")
    assert status == 1
    assert "does not fit" in out
    assert "--max-model-len" in out
    status, out, _ = _run(capsys, "plan", model)
    assert status == 0
    assert "11,008 tokens" in out
    assert "sampling     temperature 0.2, top_p 0.9\n" in out
    _, out, _ = _run(capsys, "plan", model, "--generation-config", "none")
    assert "sampling     temperature 1\n" in out


def test_doctor(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = _run(capsys, "doctor", model, "--json")
    report = json.loads(out)
    assert report["native"]["cores"] >= 1
    assert report["native"]["placement"]
    assert {"linear", "paged_attention"} <= {row["op"] for row in report["kernels"]}
    _, out, _ = _run(capsys, "doctor", "--cache-dir", str(tmp_path))
    assert "not fetched yet" in out  # and nothing was fetched
    _, out, _ = _run(capsys, "doctor", "--cache-dir", str(tmp_path), "--numa", "off")
    assert "placement    as the system does (--numa off)" in out
    assert not list(tmp_path.iterdir())


def test_export(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = _run(capsys, "export", model, "-o", str(tmp_path / "a/b"), "--json")
    written = json.loads(out)
    assert status == 0
    assert Path(written["program"]).read_text().startswith("pagemill-program 3\n")
    vocabulary = Path(written["vocabulary"]).read_text().splitlines()
    assert vocabulary[0] == "words - -"
    assert len(vocabulary) == 1 + 49152
    assert vocabulary[1 + 2] == b"<|im_end|>".hex() + " -3"


@pytest.mark.parametrize("kind", ["latency", "throughput"])
def test_offline_benchmarks(
    model: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--num-prompts", "3", "--input-len", "20", "--output-len", "4", "--prefix-len", "17")
    argv = ("bench", kind, model, *sizes, "--num-iters", "1", "--num-warmups", "0", "--json")
    status, out, _ = _run(capsys, *argv)
    report = json.loads(out)
    assert status == 0
    assert report["requests"] == 3
    assert report["temperature"] > 0
    assert report["limits"]["read_gb_per_s"] > 0.1
    achieved = report["achieved_over_limit"]
    for share in achieved.values() if kind == "latency" else [achieved]:
        assert 0 < share < 2  # above 1 only if the machine was busy before
    status, out, _ = _run(capsys, *argv, "--no-limits", "--profile", "--temperature", "0")
    report = json.loads(out)
    assert status == 0
    assert report["temperature"] == 0
    assert "achieved_over_limit" not in report
    decode = report["profile"]["decode"]
    assert decode["steps"] >= 3
    assert {"linear", "paged_attention", "sampling", "between"} <= {
        part["part"] for part in decode["parts"]
    }
    assert sum(part["share"] for part in decode["parts"]) == pytest.approx(1)
    layers = [entry["layer"] for entry in decode["layers"]]
    assert layers == [*(f"layer.{i}" for i in range(len(layers) - 1)), "end"]
    assert sum(entry["share"] for entry in decode["layers"]) == pytest.approx(1)
    trace = tmp_path / "trace.json"
    assert _run(capsys, *argv, "--no-limits", "--trace", str(trace))[0] == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"execute", "linear"} <= {event["name"] for event in events}
    assert _run(capsys, *argv[:-1], "--no-limits", "--profile")[1].count("waiting") == 2
    assert _run(capsys, *argv[:-1], "--no-limits", "--profile", "layers")[1].count("layer.0") == 2


def test_limits(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    status, out, notes = _run(capsys, "bench", "limits", model, "--json")
    assert time.monotonic() - begin < 60
    report = json.loads(out)
    assert status == 0
    assert "reading 32 MiB" in notes
    assert report["multiply"][0]["isa"] == "portable"
    assert all(row["one_thread"] > 1e6 for row in report["read"] + report["multiply"])
    # All weights but the norms, which are vectors, and what the file says of itself.
    weights = report["read"][-1]["bytes"]
    assert 0.9 < weights / os.path.getsize(model) < 1
    limit = report["model"]["decode_tokens_per_s"]
    assert limit <= report["read"][-1]["all_threads"] / weights * 1.001
    status, out, _ = _run(capsys, "bench", "limits", model, "--threads", "1")
    assert status == 0
    assert "one stream" in out


def test_an_export_to_a_full_disk_names_the_file_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "model.gguf", tmp_path / "exported"
    source.write_bytes(b"weights")
    folder.mkdir()

    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"w")
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr("os.link", full)
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(OSError, match="No space left") as caught:
        with_weights(f"file 0 {source}\n", folder)
    assert caught.value.filename == str(folder / "model.gguf")
    assert not list(folder.iterdir())


def test_an_exported_program_names_weights_of_its_folder(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    for name, data in [("a/w.bin", "1"), ("b/w.bin", "2"), ("model.program", "3")]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(data)
    folder.mkdir()
    files = [f"{source}/a/w.bin", "@", f"{source}/b/w.bin", f"{source}/model.program"]
    text = "head\n" + "".join(f"file {i} {file}\n" for i, file in enumerate(files)) + "op file 0 /x"
    for _ in range(2):  # an export may be repeated
        assert with_weights(text, folder) == (
            "head\nfile 0 w.bin\nfile 1 @\nfile 2 2-w.bin\nfile 3 3-model.program\nop file 0 /x"
        )
        placed = {path.name: path.read_text() for path in folder.iterdir()}
        assert placed == {"w.bin": "1", "2-w.bin": "2", "3-model.program": "3"}
