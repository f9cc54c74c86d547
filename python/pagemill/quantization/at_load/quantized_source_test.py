"""Files of rounded matrices are written once, whole or not at all, and within bounds."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pagemill.config.load_quantization import LoadQuantization
from pagemill.quantization.at_load import room, rounded_file
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.quantized_source import quantize
from pagemill.quantization.at_load.testing.decoded import read_matrix
from pagemill.quantization.packed import PackedScheme
from pagemill.quantization.table import method_of
from pagemill.weights.errors import WeightsError
from pagemill.weights.read import read_bytes
from pagemill.weights.source import ModelSource
from pagemill.weights.stored_matrix import StoredMatrix

SHAPES = {"a.weight": (300, 256), "b.weight": (40, 96), "odd.weight": (24, 50)}
STACK = (3, 256, 64)
Targets = tuple[tuple[str, str], ...]


class Model:
    """A directory with matrices, a stack of them, and a vector; `searches` counts how often its
    matrices were looked for."""

    def __init__(self, path: Path, seed: int = 1) -> None:
        self.path, self.folder, self.searches = path / "model", path / "quantized", 0
        self.transposed = False
        self.path.mkdir(exist_ok=True)
        random = np.random.default_rng(seed)
        shapes = SHAPES | {"experts.up": STACK, "norm.weight": (256,)}
        self.tensors = {
            name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()
        }
        self.save()
        (self.path / "config.json").write_text(json.dumps({"architectures": ["Any"]}))

    def save(self) -> None:
        save_file(self.tensors, self.path / "model.safetensors")

    @property
    def source(self) -> ModelSource:
        return ModelSource.open(self.path)

    def quantized(
        self, name: str, *ignored: str, values: bool = True, targets: Targets = ()
    ) -> ModelSource:
        def matrices() -> Sequence[StoredMatrix]:
            self.searches += 1
            tensors = [tensor for tensor in self.source.tensors if tensor.name != "norm.weight"]
            return [StoredMatrix(tensor, self.transposed) for tensor in tensors]

        at_load = LoadQuantization(name, str(self.folder), ignored, targets)
        return quantize(self.source, at_load, matrices, io.StringIO(), values=values)

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> Model:
    return Model(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_are_near_and_others_stay(
    model: Model, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are rounded at a time."""
    monkeypatch.setattr(rounded_file, "_CHUNK", 4096)
    source = model.quantized(name)
    matrices = {key.removesuffix(".weight"): model.tensors[key] for key in SHAPES}
    matrices |= {f"experts.up.{i}": model.tensors["experts.up"][i] for i in range(STACK[0])}
    if name.startswith("int") and "w8a8" not in name:  # groups of 32 columns
        assert source.tensor("odd.weight") == model.source.tensor("odd.weight")
        del matrices["odd"]
    for module, expected in matrices.items():
        values = read_matrix(source, module, expected.shape)
        assert np.mean((values - expected) ** 2) < 8e-3 * np.mean(expected**2)
        assert np.abs(values - expected).max() > 0
    assert not source.has("experts.up")
    assert source.tensor("norm.weight") == model.source.tensor("norm.weight")
    assert method_of(source.config).scheme("a").name.startswith("compressed-tensors")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", FORMATS)
def test_transposed_matrices_become_as_others(
    model: Model, name: str, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounded_file, "_CHUNK", 4096)
    model.tensors = {key: tensor.astype(dtype) for key, tensor in model.tensors.items()}
    model.save()
    rounded = model.quantized(name)
    stored = {tensor.name: read_bytes(tensor) for tensor in rounded.tensors}
    for key, tensor in model.tensors.items():
        if tensor.ndim > 1:
            model.tensors[key] = np.ascontiguousarray(tensor.swapaxes(-1, -2))
    model.transposed = True
    model.save()
    os.utime(model.path / "model.safetensors", ns=(0, 1))
    turned = model.quantized(name)
    assert stored.keys() == {tensor.name for tensor in turned.tensors}
    for tensor in turned.tensors:
        if not tensor.name.startswith("odd") or turned.has("odd.weight_scale"):
            assert tensor.shape == rounded.tensor(tensor.name).shape
            np.testing.assert_array_equal(read_bytes(tensor), stored[tensor.name])


@pytest.mark.parametrize(("entry", "stays"), [("a", "a.weight"), ("re:.*up", "experts.up")])
def test_modules_that_stay_as_they_are(
    model: Model, entry: str, stays: str, caplog: pytest.LogCaptureFixture
) -> None:
    for searches in (1, 1):  # the second is of the file that the first has written
        source = model.quantized("fp8", entry, "re:.*nothing", "norm")
        assert model.searches == searches
        assert source.tensor(stays) == model.source.tensor(stays)
        assert source.tensor("b.weight").dtype == "f8_e4m3"
        assert ("'re:.*nothing' lists no module" in caplog.text) and "'norm'" not in caplog.text
        caplog.clear()
    # Another list makes another file, in which other matrices are.
    assert model.quantized("fp8").tensor("b.weight").file != source.tensor("b.weight").file
    assert model.quantized("fp8", "norm", "re:.*nothing", entry, entry).has(stays)
    assert model.searches == 2


def test_modules_of_other_formats(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    """The first target that lists a module counts; a stack's names all of its matrices."""
    targets = (("re:experts.up$", "int8"), ("a", "int4"), ("experts", "int4"), ("head", "fp8"))
    for searches in (1, 1):
        source = model.quantized("fp8", "odd", targets=targets)
        assert model.searches == searches
        method = method_of(source.config)
        assert method.scheme("b") == method_of(model.quantized("fp8").config).scheme("b")
        for module, bits in (("experts.up.2", 8), ("a", 4)):
            assert method.scheme(module) == PackedScheme(
                "compressed-tensors", "pack_quantized", bits, 32, zeros=bits == 4
            )
        for module, shape in (("a", (300, 256)), ("b", (40, 96)), ("experts.up.2", STACK[1:])):
            name, _, index = module.partition(".up.")
            stored = model.tensors[f"{name}.up"][int(index)] if index else None
            expected = model.tensors[f"{module}.weight"] if stored is None else stored
            values = read_matrix(source, module, shape)
            assert np.mean((values - expected) ** 2) < 8e-3 * np.mean(expected**2)
        assert source.tensor("odd.weight") == model.source.tensor("odd.weight")
        assert "'head' lists no module" in caplog.text and "'experts'" not in caplog.text
        caplog.clear()
        model.searches = 1
    reordered = model.quantized("fp8", "odd", targets=targets[1:] + targets[:1])
    assert (
        method_of(reordered.config).scheme("experts.up.0").name.startswith("compressed-tensors (4")
    )


def test_a_list_of_all_modules_is_refused(model: Model) -> None:
    with pytest.raises(WeightsError, match="fp8, without those of --quantization-config"):
        model.quantized("fp8", "re:.*")
    assert not model.files


def test_files_are_written_once_for_a_checkpoint_and_a_format(model: Model) -> None:
    first = model.quantized("fp8")
    assert model.quantized("fp8").tensor("a.weight") == first.tensor("a.weight")
    assert model.searches == 1
    model.quantized("int8")
    assert model.searches == 2 and len(model.files) == 2
    model.tensors["a.weight"] *= 2
    model.save()
    os.utime(model.path / "model.safetensors", ns=(0, 1))
    assert model.quantized("fp8").tensor("a.weight").file != first.tensor("a.weight").file
    assert model.searches == 3


def test_a_plan_writes_no_values(model: Model) -> None:
    planned = model.quantized("int4", values=False)
    (file,) = model.files
    assert file.stat().st_blocks * 512 < file.stat().st_size
    written = model.quantized("int4")
    assert read_matrix(written, "a", SHAPES["a.weight"]).any()
    shapes = {tensor.name: tensor.shape for tensor in written.tensors}
    assert shapes == {tensor.name: tensor.shape for tensor in planned.tensors}
    # And what is there is used.
    again = model.quantized("int4", values=False)
    assert again.tensor("a.weight_packed") == written.tensor("a.weight_packed")


def test_numbers_that_are_not_finite_are_refused(model: Model) -> None:
    model.tensors["a.weight"][123, 45] = np.nan
    model.save()
    with pytest.raises(WeightsError, match="a.weight has numbers that are not finite"):
        model.quantized("fp8")
    assert not model.files


def test_a_model_without_such_matrices_is_refused(model: Model) -> None:
    at_load = LoadQuantization("int4", str(model.folder))
    with pytest.raises(WeightsError, match="no matrix can be quantized to int4"):
        quantize(model.source, at_load, list, io.StringIO())


def test_a_full_disk_is_an_error_that_leaves_nothing(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(model.path)._replace(free=1000)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(WeightsError, match=r"quantized weights .*No space.*--cache-dir"):
        model.quantized("fp8")
    assert not model.files


def test_old_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were read the longest ago, if there is no room; and all after 30 days."""
    now, day = time.time(), 24 * 3600
    ages = {"ancient": 31, "older": 3, "abandoned.partial": 2.5, "newer": 2, "newest": 1}
    for name, days in (ages | {"own.partial": 0.5}).items():
        (tmp_path / name).write_bytes(bytes(4096))
        os.utime(tmp_path / name, (now - days * day, now))
    disk = shutil.disk_usage(tmp_path)

    def files() -> list[str]:
        return sorted(file.name for file in tmp_path.iterdir())

    def usage(_: Path):
        return disk._replace(total=40960, free=32768 - 4096 * len(files()))

    monkeypatch.setattr(room.shutil, "disk_usage", usage)
    with pytest.raises(OSError, match="No space"):
        room.make_room(tmp_path, 32768)
    assert len(files()) == 6
    room.make_room(tmp_path, 0)
    assert files() == ["abandoned.partial", "newer", "newest", "older", "own.partial"]
    room.make_room(tmp_path, 8192)  # of 12,288 that are free 4,096 are to stay so
    assert len(files()) == 5
    room.make_room(tmp_path, 16384)
    assert files() == ["newer", "newest", "own.partial"]


def test_a_damaged_file_is_written_again(model: Model) -> None:
    written = model.quantized("fp8")
    (file,) = model.files
    stored = file.read_bytes()
    file.write_bytes(bytes(len(stored)))
    assert model.quantized("fp8").tensor("a.weight") == written.tensor("a.weight")
    assert file.read_bytes() == stored


def test_numbers_that_scales_do_not_hold_are_refused(model: Model) -> None:
    model.tensors["b.weight"] *= np.float32(1e8)
    model.save()
    with pytest.raises(WeightsError, match="b.weight has numbers that are too large"):
        model.quantized("int4")
    assert not model.files
    model.quantized("fp8")
