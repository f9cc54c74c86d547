"""Safetensors headers are read as written; corrupt ones end in WeightsError."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pagemill.tensor.dtypes import DTYPES
from pagemill.weights import WeightsError
from pagemill.weights.json_file import read_object
from pagemill.weights.read import read_f32
from pagemill.weights.safetensors import INDEX_FILE, read_directory, read_file, read_metadata

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.tensor([[1.5], [-2.0]], dtype=torch.bfloat16),
    "h": torch.tensor([0.5, 65504.0], dtype=torch.float16),
    "wide": torch.zeros(2, dtype=torch.float64),  # a type that no op takes
}


def test_values(tmp_path: Path):
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = read_directory(tmp_path)
    assert {name: at.dtype for name, at in found.items()} == {
        "a": "f32",
        "b": "bf16",
        "h": "f16",
        "wide": "f64",
    }
    with pytest.raises(WeightsError, match="a tensor of f64 is not a weight"):
        read_f32(found.pop("wide"))
    for name, location in found.items():
        assert torch.equal(torch.from_numpy(read_f32(location).copy()), TENSORS[name].float())


def test_shards(tmp_path: Path):
    save_file({"a": TENSORS["a"]}, tmp_path / "one.safetensors")
    save_file({"b": TENSORS["b"]}, tmp_path / "two.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    found = read_directory(tmp_path)
    assert Path(found["b"].file).name == "two.safetensors" and set(found) == {"a", "b"}
    index["weight_map"]["c"] = "one.safetensors"
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="1 tensors are in no shard, first 'c'"):
        read_directory(tmp_path)
    index["weight_map"] = {"a": "one.safetensors", "d": "three.safetensors"}
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="lacks 'three.safetensors'.*finish the download"):
        read_directory(tmp_path)
    index["weight_map"] = {"a": "../secret.safetensors"}
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="not a plain file name"):
        read_directory(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model-rank-1-part-0.safetensors", "sharded state .* use the checkpoint that it was"),
        ("other.safetensors", "nor model.safetensors.index.json$"),
    ],
)
def test_files_that_are_not_read(name: str, message: str, tmp_path: Path):
    (tmp_path / name).touch()
    with pytest.raises(WeightsError, match=message):
        read_directory(tmp_path)


def test_texts_of_a_header(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path, metadata={"format": "pt"})
    assert read_metadata(path) == {"format": "pt"}
    save_file(TENSORS, path)
    assert not read_metadata(path)
    for texts in (["format"], {"format": 3}):
        with pytest.raises(WeightsError, match="__metadata__ must map names to texts"):
            read_metadata(_write(path, {"__metadata__": texts}))
    with pytest.raises(WeightsError, match="the header is not a JSON object"):
        read_metadata(_write(path, []))


def _write(path: Path, header: object, data: bytes = bytes(16)) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def _f32(begin: int, end: int) -> dict[str, object]:
    """An entry of the numbers from `begin` to `end`."""
    return {"dtype": "F32", "shape": [end - begin], "data_offsets": [4 * begin, 4 * end]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([], "not a JSON object"),
        ({"a": 3}, "malformed entry"),
        ({"a": {"dtype": "F32", "shape": [4]}}, "malformed entry"),
        ({"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}, "outside the file"),
        ({"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}, "malformed entry"),
        ({"a": {"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]}}, "malformed entry"),
        ({"a": {"dtype": "F32", "shape": [1] * 99, "data_offsets": [0, 4]}}, "malformed entry"),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}}, "16 bytes for F32"),
        ({"a": _f32(0, 2), "b": _f32(1, 4)}, "tensor 'a' and tensor 'b' overlap"),
        ({"a": _f32(0, 1), "b": _f32(2, 4)}, "tensor 'a' and tensor 'b' have unused bytes"),
        ({"a": _f32(1, 4)}, "the header and tensor 'a' have unused bytes"),
        ({"a": _f32(0, 3)}, "4 bytes follow the last tensor"),
        ({"a": _f32(0, 2), "b": {**_f32(1, 4), "dtype": "F64"}}, "overlap"),
    ],
)
def test_message(tmp_path: Path, header: object, message: str):
    with pytest.raises(WeightsError, match=message):
        read_file(_write(tmp_path / "x.safetensors", header))


def test_a_deep_header(tmp_path: Path):
    (tmp_path / "x").write_bytes((10**6).to_bytes(8, "little") + b"[" * 10**6)
    with pytest.raises(WeightsError, match="nested too deep"):
        read_file(tmp_path / "x")


def test_header_length_is_not_trusted(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"\xff" * 8 + b"{}")
    with pytest.raises(WeightsError, match="cut short"):
        read_file(tmp_path / "x")


@settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 400), junk=st.binary(min_size=1, max_size=6), cut=st.integers(0, 40))
def test_corruption_is_an_error_or_harmless(tmp_path: Path, at: int, junk: bytes, cut: int):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    data = bytearray(path.read_bytes())
    data[at : at + len(junk)] = junk
    path.write_bytes(data[: len(data) - cut])
    try:
        found = read_file(path)
    except WeightsError:
        return
    for location in found.values():
        if location.dtype in DTYPES:
            read_f32(location)


def test_a_pointer_of_git_lfs(tmp_path: Path):
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")
    with pytest.raises(WeightsError, match="run `git lfs pull`"):
        read_file(tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="not JSON: it is a pointer of Git LFS"):
        read_object(tmp_path / "config.json")
