"""Matrices of torchao have the values that their tensors say, or are refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from pagemill.config.load_quantization import LoadQuantization
from pagemill.quantization.at_load.converted_source import convert
from pagemill.quantization.at_load.testing.decoded import read_matrix
from pagemill.quantization.at_load.torchao_matrices import torchao_matrices
from pagemill.weights.errors import MissingTensorError, WeightsError
from pagemill.weights.source import ModelSource

SHAPE = (12, 96)
GROUP = 32
BLOCKS = SHAPE[1] // GROUP


class Model:
    """One matrix `a` as the class `kind` stores it; tensors and the header's `text` may be changed
    before the model is opened. All numbers are small, so that products are exact in f32."""

    def __init__(self, path: Path, kind: str) -> None:
        random = np.random.default_rng(7)
        self.path = path
        scale = (random.integers(1, 64, (SHAPE[0], BLOCKS)) / 64).astype(np.float16)
        zero = random.integers(-8, 8, scale.shape)
        bits = 8 if kind == "Int8Tensor" else 4
        q = random.integers(-(1 << bits - 1), 1 << bits - 1, SHAPE)
        spread = [np.repeat(numbers, GROUP, axis=1) for numbers in (scale, zero)]
        self.text: dict[str, Any] = {"_type": kind, "_data": {"block_size": [1, GROUP]}}
        if kind.startswith("Int4"):
            self.values = (q * spread[0] + spread[1] / 64).astype(np.float32)
            zero = (zero / 64).astype(np.float16)
            self.text["_data"]["shape"] = list(SHAPE)
            self.tensors = _tiled(q, scale, zero) if "Tile" in kind else _paired(q, scale, zero)
        else:
            self.values = ((q - spread[1]) * spread[0]).astype(np.float32)
            self.tensors = {"qdata": q.astype(np.int8), "scale": scale}
            self.tensors["zero_point"] = zero.astype(np.int8)

    @property
    def source(self) -> ModelSource:
        tensors = {f"a._weight_{name}": tensor for name, tensor in self.tensors.items()}
        tensors["a.bias"] = np.zeros(SHAPE[0], np.float16)
        texts = {"a.weight": json.dumps(self.text), "format": "pt"}
        save_file(tensors, self.path / "model.safetensors", metadata=texts)
        (self.path / "config.json").write_text(json.dumps({"architectures": ["Any"]}))
        return ModelSource.open(self.path)


Tensors = dict[str, npt.NDArray[Any]]


def _paired(q: npt.NDArray[Any], scale: npt.NDArray[Any], zero: npt.NDArray[Any]) -> Tensors:
    codes = (q & 15).astype(np.uint8)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).view(np.int8)
    numbers = {"scale": scale, "zero_point": zero}
    return {"qdata": packed} | {key: np.ascontiguousarray(n.T) for key, n in numbers.items()}


def _tiled(q: npt.NDArray[Any], scale: npt.NDArray[Any], zero: npt.NDArray[Any]) -> Tensors:
    """Thread t of a warp has row t / 4 of 8, and of 16 columns the pairs at t % 4 * 2 and 8 behind;
    a word has two such tiles of columns, first numbers of pairs in its lower half."""
    padded = np.zeros((16, 1024), np.uint32)
    padded[: SHAPE[0], : SHAPE[1]] = q + 8
    words = np.zeros((2, 8, 32, 4), np.uint32)
    for place in np.ndindex(words.shape):
        tile, outer, thread, inner = place
        begin = outer * 128 + inner * 32 + thread % 4 * 2
        columns = [begin + 8 * (i % 4) + i // 4 for i in range(8)]
        codes = padded[tile * 8 + thread // 4, columns]
        words[place] = sum(int(code) << 4 * i for i, code in enumerate(codes))
    numbers = np.zeros((1024 // GROUP, 16, 2), np.float16)
    numbers[:BLOCKS, : SHAPE[0], 0], numbers[:BLOCKS, : SHAPE[0], 1] = scale.T, zero.T
    return {"qdata": words.view(np.int32), "scale_and_zero": numbers}


KINDS = ("Int4Tensor", "Int4TilePackedTo4dTensor", "Int8Tensor", "IntxUnpackedToInt8Tensor")


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_any_rows(kind: str, tmp_path: Path) -> None:
    model = Model(tmp_path, kind)
    (matrix,) = torchao_matrices(model.source)
    assert (matrix.module, matrix.shape) == ("a", SHAPE)
    assert set(matrix.parts) == {f"a._weight_{name}" for name in model.tensors}
    for begin, count in ((0, 12), (1, 1), (6, 4)):
        assert (matrix.rows(begin, count) == model.values[begin : begin + count]).all()


@pytest.mark.parametrize("kind", ["Int4Tensor", "IntxUnpackedToInt8Tensor"])
def test_they_are_converted_and_other_tensors_stay(kind: str, tmp_path: Path) -> None:
    model = Model(tmp_path, kind)
    at_load = LoadQuantization("torchao", str(tmp_path / "quantized"))
    source = convert(model.source, at_load, io.StringIO())
    assert {t.name for t in source.tensors} == {"a.bias", "a.weight_packed", "a.weight_scale"}
    largest = np.abs(model.values.reshape(-1, 32)).max(1, keepdims=True)
    errors = np.abs(read_matrix(source, "a", SHAPE) - model.values).reshape(-1, 32)
    assert (errors <= largest * (1 / 128 + 2**-11)).all()


def test_a_scale_of_the_whole_matrix(tmp_path: Path) -> None:
    model = Model(tmp_path, "Int8Tensor")
    model.tensors |= {
        "scale": np.full((1, 1), 0.5, np.float32),
        "zero_point": np.ones((1, 1), "i1"),
    }
    model.text["_data"]["block_size"] = list(SHAPE)
    (matrix,) = torchao_matrices(model.source)
    assert (matrix.rows(2, 3) == (model.tensors["qdata"][2:5] - 1.0) * 0.5).all()


def test_matrices_without_zero_points_are_used_as_they_are(tmp_path: Path) -> None:
    model = Model(tmp_path, "Int8Tensor")
    model.tensors["zero_point"][:] = 0
    assert not torchao_matrices(model.source)
    del model.tensors["zero_point"]
    source = model.source
    assert convert(source, LoadQuantization("torchao", str(tmp_path)), io.StringIO()) is source


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (
            "scale",
            np.ones((12, 4), np.float32),
            r"scale is f32 \[12, 4\]; that of a Int4T.* \[3, 12",
        ),
        ("scale", np.ones((3, 12), np.int8), r"must be f32 or bf16 or f16 \[3, 12\]"),
        ("qdata", np.ones((12, 47), np.int8), r"qdata is i8 \[12, 47\]; .* must be i8 \[12, 48\]"),
        ("act_pre_scale", np.ones(96, np.float16), "factors of activations are not supported"),
    ],
)
def test_tensors_that_do_not_fit(name: str, tensor: Any, message: str, tmp_path: Path) -> None:
    model = Model(tmp_path, "Int4Tensor")
    model.tensors[name] = tensor
    with pytest.raises(WeightsError, match=message):
        torchao_matrices(model.source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            {"_type": "Int4PreshuffledTensor", "_data": {}},
            "a 'Int4PreshuffledTensor' of torchao; sup",
        ),
        ([], "a.weight is a None of torchao; supported: Float8Tensor, Int4Tensor"),
        ({"_type": "Int4Tensor", "_data": {"shape": [12]}}, "has the sizes a list; supported"),
        ({"_type": "Int4Tensor", "_data": {"shape": [12, 96]}}, "has the sizes None; supported"),
        ({"_type": "Int4Tensor", "_data": {"block_size": [0, 32]}}, "has the sizes a list; supp"),
    ],
)
def test_texts_that_are_not_supported(text: Any, message: str, tmp_path: Path) -> None:
    model = Model(tmp_path, "Int4Tensor")
    model.text = text
    with pytest.raises(WeightsError, match=message):
        torchao_matrices(model.source)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    model = Model(tmp_path, "Int4Tensor")
    zeros = model.tensors.pop("zero_point")
    with pytest.raises(MissingTensorError, match="'a._weight_zero_point' is missing"):
        torchao_matrices(model.source)
    model.tensors["zero_point"] = zeros
    source = model.source
    tensors = {f"a._weight_{name}": tensor for name, tensor in model.tensors.items()}
    save_file(tensors, source.tensor("a.bias").file)
    with pytest.raises(WeightsError, match="do not say what a.weight is"):
        torchao_matrices(ModelSource.open(tmp_path))
