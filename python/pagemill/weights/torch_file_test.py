"""Files of torch.save are read without torch, and nothing in them is called."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagemill.weights.errors import WeightsError
from pagemill.weights.read import read_f32
from pagemill.weights.torch_file import read_torch_file


def _save(path: Path, value: object) -> Path:
    torch.save(value, path)
    return path


def test_a_state_dictionary(tmp_path: Path) -> None:
    layer = torch.nn.Linear(5, 3)
    half = layer.weight.detach().half()
    tensors = {**layer.state_dict(), "half": half, "again": half, "part": half[1:], "one": half[0]}
    found = read_torch_file(_save(tmp_path / "layer.pt", tensors))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        at = found[name]
        assert at.shape == tuple(tensor.shape)
        assert at.dtype == ("f32" if tensor.dtype == torch.float32 else "f16")
        np.testing.assert_array_equal(read_f32(at), tensor.float().numpy())
    assert found["half"].offset == found["again"].offset


def test_state_of_modules_and_parameters(tmp_path: Path) -> None:
    """With the versions that modules add to their dictionaries."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    found = read_torch_file(_save(tmp_path / "module.bin", module.state_dict()))
    assert list(found) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    parameters = dict(module.named_parameters())
    assert read_torch_file(_save(tmp_path / "parameters.bin", parameters)).keys() == found.keys()


class _Calls:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (exec, ("raise SystemExit('called')",))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": torch.zeros(3, 4).T}, "do not follow each other"),
        ({"a": torch.zeros(3, dtype=torch.complex64)}, "ComplexFloatStorage|is of"),
        ({"a": 1}, "'a' is no tensor"),
        ([torch.zeros(2)], "no dictionary of tensors"),
        ({"a": _Calls()}, "a call of builtins.exec|a call of __builtin__.exec"),
        ({"a": torch.nn.Linear(2, 2)}, "no dictionary of tensors"),
        ({"a": {"b": torch.zeros(2)}}, "'a' is no tensor"),
    ],
)
def test_other_values_are_refused(value: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=words):
        read_torch_file(_save(tmp_path / "other.pt", value))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(WeightsError, match=r"no zip archive .*weights_only=True"):
        read_torch_file(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data", b"")
    with pytest.raises(WeightsError, match=r"no file of torch\.save"):
        read_torch_file(path)


def test_storages_that_are_cut_short_or_packed(tmp_path: Path) -> None:
    whole = _save(tmp_path / "whole.pt", {"a": torch.zeros(64)})
    for name, size, kind, words in (
        ("short.pt", 100, zipfile.ZIP_STORED, "ends behind its storage"),
        ("packed.pt", 256, zipfile.ZIP_DEFLATED, "is compressed"),
    ):
        with zipfile.ZipFile(whole) as old, zipfile.ZipFile(tmp_path / name, "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename.endswith("/data/0"):
                    new.writestr(entry.filename, data[:size], kind)
                else:
                    new.writestr(entry.filename, data)
        with pytest.raises(WeightsError, match=words):
            read_torch_file(tmp_path / name)


def test_damaged_pickles_are_sentences(tmp_path: Path) -> None:
    whole = _save(tmp_path / "whole.pt", {"a": torch.zeros(4), "b": torch.zeros(2, 2)})
    with zipfile.ZipFile(whole) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        data = archive.read(name)
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.pt"
    for _ in range(300):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            damaged[at] = rng.integers(0, 256)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, bytes(damaged[: rng.integers(1, len(data) + 1)]))
            archive.writestr(name.replace("data.pkl", "data/0"), bytes(16))
            archive.writestr(name.replace("data.pkl", "data/1"), bytes(16))
        try:
            read_torch_file(path)
        except WeightsError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("dimensions", [9, 1850])
def test_tensors_of_many_dimensions_are_refused(dimensions: int, tmp_path: Path) -> None:
    path = _save(tmp_path / "deep.pt", {"a": torch.zeros([1] * dimensions)})
    with pytest.raises(WeightsError, match=f"{dimensions} dimensions; at most 8"):
        read_torch_file(path)
