"""Tests of the command line as a whole, in this process and in processes of its own."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import pagemill
from pagemill.cli import doctor, field_reference, main, metric_reference, model_reference
from pagemill.cli.bench_report import describe
from pagemill.cli.reference import reference
from pagemill.cli.table import COMMANDS, find
from pagemill.config.foreign_options import BENCHMARK_OPTIONS

ROOT = Path(__file__).parents[3]
EXTRAS = ("audio", "grpc", "images", "mcp", "mistral", "pdf", "plot", "top", "tracing", "video")


def _run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        status = main(argv)
    except SystemExit as stop:
        status = int(stop.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_other_benchmarks_options_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    answered: set[str] = set()
    for command in ("serve", "latency", "throughput"):
        options = [f"--{name}=x" for name in BENCHMARK_OPTIONS]
        status, _, err = _run(capsys, "bench", command, *options)
        assert status == 2
        answered |= {
            name for name, what in BENCHMARK_OPTIONS.items() if f"--{name}': {what}" in err
        }
    assert answered == BENCHMARK_OPTIONS.keys()


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = _run(capsys, "--help")
    assert status == 0
    for command in COMMANDS:
        assert f"  {' '.join(command.words)} " in out
    assert _run(capsys)[0] == 2
    status, out, _ = _run(capsys, "bench")
    assert status == 2
    assert "bench throughput" in out


def test_an_interrupt_ends_a_command_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(argv: list[str]) -> None:
        del argv
        raise KeyboardInterrupt  # as while modules are imported

    monkeypatch.setattr("pagemill.cli.program.find", interrupted)
    assert _run(capsys, "serve") == (130, "", "\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "--version") == (0, f"pagemill {pagemill.__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.words))
def test_each_command_has_help(
    command: "pagemill.cli.table.Command",  # pyright: ignore
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = _run(capsys, *command.words, "--help")
    assert status == 0
    assert out.startswith(f"usage: pagemill {' '.join(command.words)} ")
    assert "--config FILE" in out or command.words == ("models",)  # it has no settings
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("srve",), "did you mean 'serve'"),
        (("run", "m.gguf"), "unknown command 'run'; use chat, or serve"),
        (("--port", "80"), "a command comes first, such as `pagemill serve --port`"),
        (("models/m.gguf",), "such as `pagemill serve models/m.gguf`"),
        (("bench", "latncy"), "unknown: bench latncy; `pagemill bench` is followed by latency"),
        (("serve", "--prot", "1"), "did you mean '--port'"),
        (("serve", "--port", "70000"), "--port: 70000 is out of range"),
        (("serve", "--headless", "--data-parallel-address", "192.0.2.1"), "--node-secret-file"),
        (("serve", "--data-parallel-rank", "1"), "behind `pagemill route`"),
        (("serve", "--data-parallel-size-local", "2"), "--data-parallel-size 1 is less than 2"),
        (("serve", "--data-parallel-size", "2", "--max-kv-events", "9"), "--max-kv-events needs"),
        (("serve", "--data-parallel-size", "2", "--weight-transfer-dir", "/x"), "of a checkpoint"),
        (("plan", "--config", "/nonexistent.yaml"), "No such file"),
        (("chat", "--url", "ftp://x", "-q", "hi"), "not the URL of an HTTP server"),
        (("chat", "--url", "http://127.0.0.1:9", "-q", "hi"), "no server answers at 127.0.0.1:9"),
        (("complete", "Once upon a time"), "Text goes to -q: -q 'Once upon a time'"),
        (("complete", "Hello", "--url", "127.0.0.1:9"), "Text goes to -q: -q Hello"),
        (("chat", "Hello"), "Text goes to -q: -q Hello"),
        (("complete", "Once", "upon"), "unknown argument 'upon'; text goes to -q, in quotes"),
        (("generate", "Once", "upon"), "unknown argument 'upon'; text goes to -p, in quotes"),
        (("plan", "a", "b"), "unknown argument 'b'\n"),
        (("bench", "serve", "--endpoint", "/v1/chat/completions"), "needs --dataset"),
        (("bench", "serve", "--dataset", "/nonexistent.jsonl"), "No such file"),
        (("bench", "sweep"), "name the file of the grid"),
        (("bench", "sweep", "/nonexistent.json"), "/nonexistent.json: No such file"),
        (("bench", "serve", "--plot", "x.png", "--url", "127.0.0.1:9"), "matplotlib|no server"),
    ],
)
def test_failures_are_sentences(
    argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = _run(capsys, *argv)
    assert status in (1, 2)
    assert "Traceback" not in err
    assert any(word in err for word in words.split("|")), err


def test_a_model_that_is_not_there_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    if "TEST_SRCDIR" not in os.environ:  # outside Bazel
        pytest.importorskip("pagemill._native", exc_type=ImportError)
    status, _, err = _run(capsys, "plan", "/nonexistent.gguf")
    assert status == 1
    assert "no such file or directory" in err


def test_find_takes_the_whole_name() -> None:
    found = find(["bench", "serve", "--json"])
    assert found is not None
    assert found.words == ("bench", "serve")
    assert find(["bench"]) is None


def _imported(statement: str) -> set[str]:
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(out.stdout.splitlines()[-1]))


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    heavy = {"numpy", "torch", "transformers", "tokenizers", "starlette", "argparse", "yaml"}
    assert not heavy & _imported("import pagemill.cli, pagemill.cli.program")
    # A command's parser, with all its options, needs argparse and nothing else of these.
    parsers = "from pagemill.cli.table import COMMANDS\nfor c in COMMANDS: c.parser()"
    assert heavy & _imported(parsers) == {"argparse"}


def test_help_is_quick() -> None:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "pagemill.cli", "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # 50 ms where it was measured. Of a processor: the machine may be busy with other work. The best
    # of several: caches may be, too.
    assert min(once() for _ in range(8)) < 0.5


def test_the_reference_is_up_to_date() -> None:
    stored = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert stored == reference(), "run `python -m pagemill.cli.reference > docs/cli.md`"


def test_the_reference_of_fields_is_up_to_date() -> None:
    stored = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
    advice = "run `python -m pagemill.cli.field_reference > docs/fields.md`"
    assert stored == field_reference.reference(), advice


def test_the_reference_of_models_is_up_to_date() -> None:
    stored = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    advice = "run `python -m pagemill.cli.model_reference > docs/models.md`"
    assert stored == model_reference.reference(), advice


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = _run(capsys, "models", "--json")
    rows = {row["architecture"]: row for row in json.loads(out)}
    assert status == 0 and rows["MixtralForCausalLM"]["gguf"] == ["llama"]
    ranks = {row["tensor_parallel"] for row in rows.values()}
    assert ranks == {"yes", "partly"} and rows["MixtralForCausalLM"]["tensor_parallel"] == "yes"
    status, out, _ = _run(capsys, "models")
    assert status == 0 and out.splitlines()[-1].startswith(f"{len(rows)} architectures, ")
    heads = ["architecture", "models", "model_type", "task", "ranks", "cuts", "GGUF"]
    assert out.splitlines()[0].split() == heads


def test_the_reference_of_metrics_is_up_to_date() -> None:
    stored = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    advice = "run `python -m pagemill.cli.metric_reference > docs/metrics.md`"
    assert stored == metric_reference.reference(), advice


def test_doctor_looks_for_what_the_wheel_and_its_extras_require() -> None:
    looked_for = {name for name, _, _ in (*doctor.REQUIRED, *doctor.OPTIONAL)}
    found = {path.stem: path for path in (ROOT / "third_party" / "python").glob("*.in")}
    for name, path in found.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        needed = {re.split(r"[\[>=<]", line)[0] for line in lines if line and line[0] != "#"}
        if name == "runtime":
            assert needed <= looked_for, needed - looked_for
        elif name in EXTRAS:
            assert needed & looked_for, name
    assert found.keys() >= {"runtime", *EXTRAS}


def test_reports_say_which_numbers_are_means() -> None:
    report = {"requests": 4, "input_tokens": 16.0, "seconds": 0.5, "limits": {"threads": 2}}
    assert describe(report) == (
        "requests                  4\n"
        "input tokens per request  16\n"
        "seconds                   0.5\n"
        "limits                    threads 2"
    )
