"""Installation, conversion, start, and the command line."""

from pathlib import Path

import pytest
from absl import flags
from absl.testing import flagsaver

from tools.bench.compare import main
from tools.bench.compare.environment import Environment, PeerError, run_logged
from tools.bench.compare.formats import ModelFiles
from tools.bench.compare.peers.base import Start
from tools.bench.compare.peers.table import PEERS, peer
from tools.bench.compare.workloads import WORKLOADS

KINDS = {"given", "folder", "gguf_bf16", "gguf_f16", "gguf_q8_0"}


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_started_with_its_model_and_threads(name: str, tmp_path: Path) -> None:
    found = peer(name)
    assert set(found.models) <= set(main.FORMATS)
    assert set(found.models.values()) <= KINDS
    command = found.command(Environment(tmp_path), Start(tmp_path / "a.gguf", 5, 4321))
    words = " ".join(command.argv)
    assert str(tmp_path / "a.gguf") in words
    assert "5" in words.replace("=", " ").split() or "0-4" in command.environment.values()
    assert ("4321" in words) == (found.kind == "http")
    for argument in command.argv:
        assert not argument.endswith("_driver.py") or Path(argument).is_file()


def test_only_servers_get_http_and_only_the_concurrent_many_requests() -> None:
    done = {
        name: [work.name for work in WORKLOADS.values() if main.does(peer(name), work)]
        for name in ("vllm", "transformers", "llama-bench")
    }
    assert done == {
        "vllm": ["single", "prefill", "batch", "shared", "http"],
        "transformers": ["single", "prefill", "batch", "shared"],
        "llama-bench": ["single", "prefill"],
    }


def test_an_environment_is_installed_once_for_what_it_holds(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    assert not environment.has(["a==1", "b"])
    environment.mark(["a==1", "b"])
    assert environment.has(["a==1", "b"])
    assert not environment.has(["a==2", "b"])


def test_a_failed_installation_says_what_it_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_logged(["sh", "-c", "echo fine"], log)
    with pytest.raises(PeerError, match="(?s)exit status 3.*no such wheel"):
        run_logged(["sh", "-c", "echo no such wheel; exit 3"], log)
    with pytest.raises(PeerError, match="No such file"):
        run_logged([tmp_path / "nothing"], log)


def test_models_are_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "m.gguf"
    given.touch()
    calls: list[list[str | Path]] = []

    def convert(argv: list[str | Path], _log: Path) -> None:
        calls.append(argv)
        next(Path(a) for a in argv if ".unfinished" in str(a)).touch()

    monkeypatch.setattr("tools.bench.compare.formats.run_logged", convert)
    files = ModelFiles(given, tmp_path, lambda name: Environment(tmp_path / name))
    made = [files.path(kind) for kind in sorted(KINDS)]
    assert made == [files.path(kind) for kind in sorted(KINDS)]
    assert len(set(made)) == len(KINDS)
    assert all(path.exists() for path in made)
    assert len(calls) == len(KINDS) - 1
    assert [argv[-1] for argv in calls[1:]] == ["BF16", "F16", "Q8_0"]


def test_only_a_gguf_file_is_converted(tmp_path: Path) -> None:
    files = ModelFiles(tmp_path, tmp_path, Environment)
    with pytest.raises(PeerError, match="is not a GGUF file"):
        files.path("folder")


@flagsaver.flagsaver
def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    flags.FLAGS(["compare", "--peers=vllm,pagemill"])
    assert flags.FLAGS["peers"].value == ["vllm", "pagemill"]
    with pytest.raises(flags.IllegalFlagValueError, match="known: llama-bench, llama.cpp"):
        flags.FLAGS(["compare", "--peers=vllm,ollama"])
