"""Tests of pagemill.config.foreign_options, and of what messages say about unknown options."""

import pytest

from pagemill.config import ConfigError, OfflineConfig, ServeConfig, build, leaves
from pagemill.config.flags import FlagParser
from pagemill.config.foreign_options import FOREIGN_OPTIONS, foreign_option, named_options

_OWN = {leaf.flag.removeprefix("--") for leaf in leaves(ServeConfig)}


def _error(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    parser = FlagParser("pagemill serve", "Serves a model.")
    parser.add_config(ServeConfig)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(argv)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[:-1]


def test_answers_are_about_other_options_and_name_options_that_exist() -> None:
    assert not _OWN & FOREIGN_OPTIONS.keys()
    for name, what in FOREIGN_OPTIONS.items():
        assert named_options(what) <= _OWN, name


def test_every_unknown_option_gets_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = _error(
        capsys,
        *("m.gguf", "--enforce-eager", "--swap-space", "4", "--gpu_memory_utilization=0.9"),
        *("--no-enable-chunked-prefill", "-tp", "2", "--port", "1", "--prot", "1"),
        *("--runner", "pooling"),
    )
    assert [line.removeprefix("pagemill serve: unknown option ") for line in found] == [
        "'--enforce-eager': leave it out: nothing is compiled at the start",
        "'--swap-space': leave it out: preempted requests are computed again;"
        " --kv-offloading-bytes keeps evicted KV in host memory",
        "'--gpu_memory_utilization': here it is --memory-utilization",
        "'--no-enable-chunked-prefill': leave it out: a prompt longer than"
        " --max-num-batched-tokens always runs in several steps",
        "'-tp': here it is --tensor-parallel-size",
        "'--prot'; did you mean '--port'?",
        "'--runner': use --task",
    ]


def test_a_letter_of_help_is_not_read_from_a_longer_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (line,) = _error(capsys, "-hf", "owner/name")
    assert "'-hf': the model is the first argument" in line


def test_names_of_other_things_are_not_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert _error(capsys, "--headlong-runner") == [
        "pagemill serve: unknown option '--headlong-runner'"
    ]


def test_files_and_python_get_the_same_answers() -> None:
    with pytest.raises(ConfigError, match="'gpu_memory_utilization': here it is --memory-util"):
        build(OfflineConfig, {"gpu_memory_utilization": 0.5})


def test_benchmarks_have_answers_of_their_own() -> None:
    known = ["--url", "--workload-seed", "--num-prompts", "--json", "--dataset", "--input-len"]
    assert foreign_option("--seed", known) == "here it is --workload-seed"
    assert foreign_option("--base-url", known) == "here it is --url, as in http://127.0.0.1:8000"
    assert foreign_option("--batch-size", known) == "here it is --num-prompts"
    assert foreign_option("--save-result", known) == "use --json, and keep what it prints"
    assert foreign_option("--random-output-len", known) is None  # it names --output-len
    assert foreign_option("--trust-remote-code", known) == FOREIGN_OPTIONS["trust-remote-code"]
    assert foreign_option("--seed", _OWN) == FOREIGN_OPTIONS["seed"]


def test_an_answer_needs_the_options_that_it_names() -> None:
    assert foreign_option("--swap-space", ["--port"]) is None
    assert foreign_option("swap_space", ["kv_offloading_bytes"]) is not None
    assert foreign_option("port", _OWN) is None
