"""Libraries are found beside each other in parts of one package, and need not be there."""

import ctypes
from pathlib import Path

import pytest

from pagemill.engine.device_libraries import open_libraries


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", paths.append)
    return paths


def _install(site: Path, name: str) -> str:
    path = site / "nvidia" / name
    path.parent.mkdir(parents=True)
    path.touch()
    return str(path)


def test_all_parts_of_the_package_are_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: list[str]
) -> None:
    products = _install(tmp_path / "a", "cu13/lib/libcublasLt.so.13")
    transfers = _install(tmp_path / "b", "nccl/lib/libnccl.so.2")
    _install(tmp_path / "b", "cu13/lib/libcudart.so.13")
    for site in ("a", "b"):
        monkeypatch.syspath_prepend(tmp_path / site)
    open_libraries("cuda")
    assert sorted(opened) == sorted([products, transfers])


def test_other_vendors_and_missing_packages_open_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: list[str]
) -> None:
    _install(tmp_path, "cu13/lib/libcublasLt.so.13")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    open_libraries("hip")
    assert opened == []
    monkeypatch.setattr("sys.path", [])
    open_libraries("cuda")
    assert opened == []


def test_what_cannot_be_opened_is_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _install(tmp_path, "cublas/lib/libcublasLt.so.12")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    open_libraries("cuda")
    assert f"{path} is not used" in caplog.text
