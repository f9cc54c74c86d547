"""Files that a trainer puts in a folder: copied, kept as long as a tensor of them is in use, and
refused if they lie elsewhere or are not what they say."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.new_file import safetensors_header
from pagemill.weights.sent_files import SentFiles
from pagemill.weights.tensor_buckets import buckets

MAX_BYTES = 1 << 20
PAGE = os.sysconf("SC_PAGESIZE")


def write(path: Path, **tensors: np.ndarray) -> str:
    (bucket,) = buckets(tensors.items(), MAX_BYTES)
    with path.open("wb") as file:
        bucket.write(file)
    return path.name


def value(tensor: TensorLocation) -> float:
    return float(np.fromfile(tensor.file, np.float32, 1, offset=tensor.offset)[0])


def full(number: float, pages: int = 4) -> np.ndarray:
    return np.full(pages * PAGE // 4, number, np.float32)


def blocks(tensor: TensorLocation) -> int:
    return os.stat(tensor.file).st_blocks * 512


def test_tensors_stay_when_the_senders_file_is_gone(tmp_path: Path) -> None:
    files = SentFiles(tmp_path, MAX_BYTES)
    name = write(tmp_path / "sent", a=full(1), b=full(2))
    received = files.receive(name)
    (tmp_path / name).write_bytes(b"")
    (tmp_path / name).unlink()
    files.keep(received)
    assert {name: value(at) for name, at in files.tensors.items()} == {"a": 1, "b": 2}
    assert list(tmp_path.iterdir()) == []  # the copy has no name


def test_what_is_sent_again_leaves_memory(tmp_path: Path) -> None:
    files = SentFiles(tmp_path, MAX_BYTES)
    files.keep(files.receive(write(tmp_path / "sent", a=full(1), b=full(2, pages=64))))
    first = files.tensors["a"]
    before = blocks(first)
    files.keep(files.receive(write(tmp_path / "sent", b=full(3, pages=64))))
    assert blocks(first) <= before - 62 * PAGE
    assert {name: value(at) for name, at in files.tensors.items()} == {"a": 1, "b": 3}
    opened = len(os.listdir("/proc/self/fd"))
    files.keep(files.receive(write(tmp_path / "sent", a=full(4))))
    assert len(os.listdir("/proc/self/fd")) == opened  # one more, and one that is closed
    files.drop(files.receive("sent"))
    assert value(files.tensors["a"]) == 4
    files.clear()
    assert len(os.listdir("/proc/self/fd")) == opened - 2


def test_only_regular_files_of_the_folder_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(tmp_path / "outside", a=full(1))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "inner").mkdir()
    write(folder / "inner" / "file", a=full(1))
    os.mkfifo(folder / "pipe")
    files = SentFiles(folder, MAX_BYTES)
    opened = len(os.listdir("/proc/self/fd"))
    for name in (
        "../outside",
        str(tmp_path / "outside"),
        "inner/file",
        "inner",
        "link",
        "pipe",
        "none",
        ".",
        "..",
        "",
        "a\0b",
        "n" * 300,
    ):
        with pytest.raises(WeightsError):
            files.receive(name)
    assert len(os.listdir("/proc/self/fd")) == opened
    assert files.tensors == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (2**63).to_bytes(8, "little"),
        (100).to_bytes(8, "little") + b"{}",
        safetensors_header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}})
        + b"8" * 8,
        safetensors_header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
        + b"7" * 7,
        safetensors_header({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}),
        safetensors_header({"a": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}}),
        safetensors_header({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}})
        + b"8" * 8,
    ],
)
def test_files_that_are_not_what_they_say_are_refused(data: bytes, tmp_path: Path) -> None:
    files = SentFiles(tmp_path, MAX_BYTES)
    (tmp_path / "sent").write_bytes(data)
    with pytest.raises(WeightsError, match="sent"):
        files.receive("sent")


def test_a_file_larger_than_the_model_is_refused_unread(tmp_path: Path) -> None:
    files = SentFiles(tmp_path, 100)
    with (tmp_path / "sent").open("wb") as file:
        file.write(json.dumps({}).encode())
        file.truncate(1 << 40)
    with pytest.raises(WeightsError, match="more than all tensors of the model"):
        files.receive("sent")


def test_copies_leave_most_descriptors_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    files = SentFiles(tmp_path, MAX_BYTES)
    files.keep(files.receive(write(tmp_path / "sent", a=full(1))))
    files.keep(files.receive(write(tmp_path / "sent", b=full(2))))
    with pytest.raises(WeightsError, match="2 files .*a larger `bucket_bytes`"):
        files.receive("sent")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="none cannot keep what is sent"):
        SentFiles(tmp_path / "none", MAX_BYTES)
