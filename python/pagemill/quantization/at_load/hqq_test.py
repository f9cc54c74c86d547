"""Matrices of HQQ have the values that their tensors say, or are refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pagemill.config.load_quantization import LoadQuantization
from pagemill.quantization.at_load.converted_source import convert
from pagemill.quantization.at_load.hqq import hqq_matrices
from pagemill.quantization.at_load.testing.decoded import read_matrix
from pagemill.weights.errors import MissingTensorError, WeightsError
from pagemill.weights.source import ModelSource

SHAPE = (16, 96)
GROUP = 64
GROUPS = 24


class Model:
    """One matrix by the rules of the library; `tensors` may be changed before it is opened."""

    def __init__(self, path: Path, bits: int = 4, axis: int = 1) -> None:
        random = np.random.default_rng(5)
        self.path = path
        grouped = (GROUPS, GROUP) if axis == 1 else (GROUP, GROUPS)
        q = random.integers(0, 1 << bits, grouped, dtype=np.uint8)
        of_groups = (GROUPS, 1) if axis == 1 else (1, GROUPS)
        scale = random.random(of_groups, dtype=np.float32).astype(np.float16)
        zero = (random.random(of_groups, dtype=np.float32) * (1 << bits)).astype(np.float16)
        self.values = ((q - zero.astype(np.float32)) * scale.astype(np.float32)).reshape(SHAPE)
        # Parts of the rows of a matrix of groups, one above the other.
        per_word, word = (10, np.int32) if bits == 3 else (8 // bits, np.uint8)
        rows = np.pad(q, ((0, -len(q) % per_word), (0, 0)))
        packed = np.zeros((len(rows) // per_word, q.shape[1]), word)
        for part in rows.reshape(per_word, -1, q.shape[1]):
            packed = packed << bits | part
        self.tensors: dict[str, Any] = {
            "a.W_q": packed,
            "a.scale": scale,
            "a.zero": zero,
            "a.nbits": np.array(bits, np.int32),
            "a.group_size": np.array(GROUP, np.int32),
            "a.axis": np.array(axis, np.int32),
            "a.shape": np.array(SHAPE, np.int64),
            "a.packing": np.frombuffer(b"4bit_u8", np.uint8),
            "a.view_as_float": np.array(0, np.uint8),
            "a.bias": np.zeros(SHAPE[0], np.float16),
        }

    @property
    def source(self) -> ModelSource:
        save_file(self.tensors, self.path / "model.safetensors")
        (self.path / "config.json").write_text(json.dumps({"architectures": ["Any"]}))
        return ModelSource.open(self.path)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_values_of_any_rows(bits: int, axis: int, tmp_path: Path) -> None:
    """Groups of 64 begin within rows of 96, and take turns on axis 0."""
    model = Model(tmp_path, bits, axis)
    (matrix,) = hqq_matrices(model.source)
    assert (matrix.module, matrix.shape) == ("a", SHAPE)
    assert set(matrix.parts) == model.tensors.keys() - {"a.bias"}
    for begin, count in ((0, 16), (1, 1), (2, 3), (13, 3)):
        assert (matrix.rows(begin, count) == model.values[begin : begin + count]).all()


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_integers_stored_as_other_elements(kind: type[np.floating], tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.tensors["a.W_q"] = model.tensors["a.W_q"].view(kind)
    (matrix,) = hqq_matrices(model.source)
    assert (matrix.rows(0, 16) == model.values).all()


def test_offloaded_scales(tmp_path: Path) -> None:
    model = Model(tmp_path)
    both = [model.tensors.pop(f"a.{name}") for name in ("zero", "scale")]
    model.tensors["a.zero_scale"] = np.stack(both)
    (matrix,) = hqq_matrices(model.source)
    assert "a.zero_scale" in matrix.parts
    assert (matrix.rows(0, 16) == model.values).all()
    model.tensors["a.zero_scale"] = np.stack([*both, *both])
    with pytest.raises(WeightsError, match=r"zero_scale is f16 \[4, 24, 1\]; it must be zero"):
        hqq_matrices(model.source)


def test_they_are_converted_and_other_tensors_stay(tmp_path: Path) -> None:
    model = Model(tmp_path)
    at_load = LoadQuantization("hqq", str(tmp_path / "quantized"))
    source = convert(model.source, at_load, io.StringIO())
    assert {t.name for t in source.tensors} == {"a.bias", "a.weight_packed", "a.weight_scale"}
    largest = np.abs(model.values.reshape(-1, 32)).max(1, keepdims=True)
    errors = np.abs(read_matrix(source, "a", SHAPE) - model.values).reshape(-1, 32)
    assert (errors <= largest * (1 / 128 + 2**-11)).all()


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("nbits", np.array(5, np.int32), "a has 5 bits, .* supported: 1, 2, 3, 4, 8 bits"),
        ("axis", np.array(2, np.int32), "axis 2; supported"),
        ("group_size", np.array(0, np.int32), "groups of 0,"),
        ("group_size", np.array(80, np.int32), "in groups of 80"),
        ("group_size", np.array([64, 64], np.int32), r"group_size is i32 \[2\]; it must be 1 int"),
        ("shape", np.array([6, 64], np.int64), r"has 768 bytes, which are no \[6, 64\]"),
        ("shape", np.array([-6, -96], np.int64), r"are no \[-6, -96\]"),
        ("zero", np.zeros(GROUPS, np.uint8), "zero is u8 .* must be 24 numbers"),
        ("scale", np.zeros(GROUPS + 1, np.float32), "scale is f32 .* must be 24 numbers"),
    ],
)
def test_tensors_that_do_not_fit(name: str, tensor: Any, message: str, tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.tensors[f"a.{name}"] = tensor
    with pytest.raises(WeightsError, match=message):
        hqq_matrices(model.source)


def test_zero_points_that_are_quantized_are_refused(tmp_path: Path) -> None:
    """They have other tensors."""
    model = Model(tmp_path)
    model.tensors["a.zero_q"] = model.tensors.pop("a.zero")
    with pytest.raises(MissingTensorError, match=r"'a\.zero' is missing"):
        hqq_matrices(model.source)
