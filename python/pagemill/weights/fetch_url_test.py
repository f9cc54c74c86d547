"""fetch_url: models of an object store in the memory of this process, and of a fake ModelScope."""

import io
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pagemill.weights import fetch_url
from pagemill.weights.errors import FetchError
from pagemill.weights.fetch import resolve
from pagemill.weights.fetch_url import parse_url

URL = "memory://bucket/model"
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "1_Pooling/config.json": b"[]",
    "README.md": b"",
    "onnx/model.onnx": b"",
}


class Store:
    """Files of the memory; `broken` is one whose copies fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: Any = MemoryFileSystem()
        self.fetched: list[str] = []
        self.broken: str | None = None
        get_file = MemoryFileSystem.get_file

        def counted(files: Any, path: str, target: str, **options: Any) -> None:
            self.fetched.append(path.removeprefix("/bucket/model/"))
            if self.broken is not None and path.endswith(self.broken):
                raise OSError("the connection broke")
            get_file(files, path, target, **options)

        monkeypatch.setattr(MemoryFileSystem, "get_file", counted)

    def put(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            self.files.pipe_file(f"/bucket/model/{name}", content)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setitem(fetch_url.PACKAGES, "memory", "fsspec")
    MemoryFileSystem.store.clear()
    yield Store(monkeypatch)
    MemoryFileSystem.store.clear()


def _resolve(cache: Path, url: str = URL) -> Path:
    return resolve(url, cache_dir=cache, urls=True, stream=io.StringIO())


def test_only_data_is_fetched_and_only_once(tmp_path: Path, store: Store) -> None:
    store.put(FILES)
    folder = _resolve(tmp_path)
    wanted = list(FILES)[:3]
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert sorted(names) == sorted(store.fetched) == sorted(wanted)
    for name in wanted:
        assert (folder / name).read_bytes() == FILES[name]
    assert _resolve(tmp_path, URL + "/") == folder
    assert len(store.fetched) == 3


def test_gguf_files(tmp_path: Path, store: Store) -> None:
    parts = [f"q8-0000{number}-of-00002.gguf" for number in (1, 2)]
    store.put(dict.fromkeys(("q4.gguf", *parts), b"GGUF"))
    assert _resolve(tmp_path, f"{URL}/q4.gguf").name == "q4.gguf"
    first = _resolve(tmp_path, f"{URL}/{parts[0]}")
    assert sorted(path.name for path in first.parent.iterdir()) == parts
    with pytest.raises(FetchError, match=f"several GGUF files; name one of them as {URL}/FILE"):
        _resolve(tmp_path)
    with pytest.raises(FetchError, match=r"has no file q5.gguf; .*q4.gguf"):
        _resolve(tmp_path, f"{URL}/q5.gguf")


def test_a_broken_fetch_goes_on_where_it_ended(tmp_path: Path, store: Store) -> None:
    store.put(FILES)
    store.broken = "model.safetensors"
    with pytest.raises(FetchError, match=r"OSError: the connection broke\): check the network"):
        _resolve(tmp_path)
    store.broken = None
    store.fetched.clear()
    folder = _resolve(tmp_path)
    assert "config.json" not in store.fetched
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_files_of_another_version_are_not_mixed(tmp_path: Path, store: Store) -> None:
    store.put(FILES)
    store.broken = "model.safetensors"
    with pytest.raises(FetchError):
        _resolve(tmp_path)
    store.broken = None
    store.put({"config.json": b"[]"})
    folder = _resolve(tmp_path)
    assert (folder / "config.json").read_bytes() == b"[]"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_what_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(FetchError, match="there is nothing at memory://bucket/model"):
        _resolve(tmp_path)
    store.put({"config.json": b"{}", "pytorch_model.bin": b""})
    with pytest.raises(FetchError, match=r"pickles.*refused"):
        _resolve(tmp_path)
    with pytest.raises(FetchError, match="no such file or directory, and not a hub id"):
        resolve(URL, cache_dir=tmp_path)  # a name that may come from a request


def test_a_full_disk_is_noticed_before_anything_is_fetched(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(FILES)
    free = SimpleNamespace(free=len(FILES["model.safetensors"]))  # and not the other files
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    with pytest.raises(FetchError, match=r"free some, or choose another folder with --cache-dir"):
        _resolve(tmp_path)
    assert store.fetched == []


def test_packages_that_are_missing_are_named(tmp_path: Path, store: Store) -> None:
    fetch_url.PACKAGES["memory"] = "no_such_package"
    with pytest.raises(FetchError, match="pip install no_such_package"):
        _resolve(tmp_path)


class FakeModelScope:
    """What is used of modelscope_hub.HubApi."""

    def list_repo_files(
        self, repo: str, kind: str, *, revision: str | None
    ) -> list[SimpleNamespace]:
        assert (repo, kind, revision) == ("owner/name", "model", "v1")
        return [SimpleNamespace(path=name) for name in FILES]

    def download_repo(
        self,
        repo: str,
        kind: str,
        *,
        revision: str | None,
        local_dir: str,
        allow_patterns: list[str],
    ) -> None:
        assert (repo, kind, revision) == ("owner/name", "model", "v1")
        for name in allow_patterns:
            path = Path(local_dir, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(FILES[name])


def test_modelscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("modelscope_hub")
    module.__spec__ = ModuleSpec("modelscope_hub", None)
    monkeypatch.setitem(sys.modules, "modelscope_hub", module)
    monkeypatch.setattr(module, "HubApi", FakeModelScope, raising=False)
    url = "modelscope://owner/name"
    folder = resolve(url, revision="v1", cache_dir=tmp_path, urls=True, stream=io.StringIO())
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert not (folder / "README.md").exists()
    assert folder.name == parse_url(url, "v1").slug != parse_url(url, None).slug


def test_stores_have_no_revisions() -> None:
    with pytest.raises(FetchError, match="has no revisions: leave 'main' out"):
        parse_url("s3://bucket/model", "main")


@pytest.mark.parametrize("url", ["ftp://host/model", "s3://", "s3://b/m?x=1", "https://h/m.gguf"])
def test_other_urls(url: str) -> None:
    with pytest.raises(FetchError, match=r"models are read from s3://"):
        parse_url(url, None)


def test_names_of_files_differ() -> None:
    urls = ["s3://a/b", "s3://a-b", "s3://a/b.gguf", "gs://a/b", "s3://" + "x" * 300]
    slugs = [parse_url(url, None).slug for url in urls]
    assert len(set(slugs)) == len(urls)
    assert all("/" not in slug and len(slug) < 100 for slug in slugs)
