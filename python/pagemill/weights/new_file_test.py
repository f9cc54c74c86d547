"""Files that are written here appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.weights.new_file import PARTIAL, new_file, safetensors_header
from pagemill.weights.read import read_f32
from pagemill.weights.safetensors import read_file

ENTRIES = {
    name: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
    for i, name in enumerate("ab")
}


def test_what_is_not_written_is_zero(tmp_path: Path) -> None:
    path, header = tmp_path / "a.safetensors", safetensors_header(ENTRIES)
    assert len(header) % 64 == 0
    with new_file(path, header, 16) as file:
        file.write(np.array([1, 2], "<f4").tobytes())
        assert [entry.suffix for entry in tmp_path.iterdir()] == [PARTIAL]
    assert list(tmp_path.iterdir()) == [path]
    tensors = read_file(path)
    assert {name: read_f32(at).tolist() for name, at in tensors.items()} == {
        "a": [1, 2],
        "b": [0, 0],
    }


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_file(tmp_path / "a", b"", 16):
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays_until_another_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with new_file(path, b"new", 1):
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new\0"
