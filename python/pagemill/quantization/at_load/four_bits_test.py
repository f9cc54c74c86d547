"""Matrices in 4 bits of bitsandbytes have the values that their tensors say, or are refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pagemill.config.load_quantization import LoadQuantization
from pagemill.quantization.at_load import four_bits
from pagemill.quantization.at_load.converted_source import convert
from pagemill.quantization.at_load.four_bits import four_bit_matrices
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import MAX_JSON_BYTES
from pagemill.weights.location import TensorLocation
from pagemill.weights.source import ModelSource

NAME = "a.weight"
STATE = f"{NAME}.quant_state.bitsandbytes__nf4"
SHAPE = (6, 96)
BLOCK = 64
BLOCKS = 9


class Model:
    """One matrix; `state` and `tensors` may be changed before it is opened."""

    def __init__(self, path: Path) -> None:
        random = np.random.default_rng(3)
        self.path = path
        self.codes = random.integers(0, 16, SHAPE, dtype=np.uint8)
        flat = self.codes.reshape(-1)
        self.table = np.sort(random.standard_normal(16, dtype=np.float32))
        self.magnitudes = random.random(BLOCKS, dtype=np.float32)
        self.state: dict[str, Any] = {"blocksize": BLOCK, "shape": SHAPE, "quant_type": "nf4"}
        self.tensors: dict[str, Any] = {
            NAME: (flat[0::2] << 4 | flat[1::2]).reshape(-1, 1),
            f"{NAME}.quant_map": self.table,
            f"{NAME}.absmax": self.magnitudes,
        }

    @property
    def source(self) -> ModelSource:
        state = np.frombuffer(json.dumps(self.state).encode(), np.uint8)
        save_file({STATE: state, **self.tensors}, self.path / "model.safetensors")
        (self.path / "config.json").write_text(json.dumps({"architectures": ["Any"]}))
        return ModelSource.open(self.path)

    def expected(self, magnitudes: np.ndarray) -> np.ndarray:
        values = [
            self.table[code] * magnitudes[i // BLOCK]
            for i, code in enumerate(self.codes.reshape(-1))
        ]
        return np.array(values, np.float32).reshape(SHAPE)


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> Model:
    return Model(tmp_path)


def test_values_of_any_rows(model: Model) -> None:
    """Blocks of 64 begin within rows of 96."""
    (matrix,) = four_bit_matrices(model.source)
    assert (matrix.module, matrix.shape) == ("a", SHAPE)
    expected = model.expected(model.magnitudes)
    assert (matrix.rows(0, 6) == expected).all()
    assert (matrix.rows(1, 1) == expected[1:2]).all()
    assert (matrix.rows(3, 2) == expected[3:5]).all()


def test_magnitudes_that_are_codes(model: Model) -> None:
    random = np.random.default_rng(4)
    codes = random.integers(0, 256, BLOCKS, dtype=np.uint8)
    table = np.linspace(-1, 1, 256, dtype=np.float32)
    outer = np.array([0.25], np.float32)
    model.state |= {"nested_blocksize": 256, "nested_offset": 0.5, "nested_dtype": "float32"}
    model.tensors[f"{NAME}.absmax"] = codes
    model.tensors[f"{NAME}.nested_absmax"] = outer
    model.tensors[f"{NAME}.nested_quant_map"] = table
    (matrix,) = four_bit_matrices(model.source)
    magnitudes = np.array([table[code] * outer[0] + np.float32(0.5) for code in codes])
    assert (matrix.rows(0, 6) == model.expected(magnitudes)).all()
    assert set(matrix.parts) == {tensor.name for tensor in model.source.tensors}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"blocksize": 48}, "blocksize 48 is not supported; supported: multiples of 32"),
        ({"blocksize": 0}, "blocksize 0"),
        ({"blocksize": True}, "blocksize True"),
        ({"blocksize": 128}, r"absmax is f32 \[9\]; it must be f32 \[5\]"),
        ({"shape": [6, 96, 1]}, "shape a list .* supported: .rows, columns"),
        ({"shape": [-6, -96]}, "shape a list"),
        ({"shape": None}, "shape None"),
        ({"shape": [10**4000, 10**4000]}, "shape a list"),
        ({"shape": [6, 64]}, "has 288 bytes, but the 384 elements"),
    ],
)
def test_states_that_do_not_fit(model: Model, state: dict[str, Any], message: str) -> None:
    model.state |= state
    with pytest.raises(WeightsError, match=message):
        four_bit_matrices(model.source)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("quant_map", np.zeros(15, np.float32), r"quant_map is f32 \[15\]; it must be f32 \[16\]"),
        ("absmax", np.zeros(BLOCKS, np.float16), r"absmax is f16 \[9\]; it must be f32 \[9\]"),
        ("nested_absmax", np.zeros(1, np.float32), "nested_blocksize None"),
        ("quant_state.bitsandbytes__int3", np.zeros(1, np.uint8), "its type 'int3' .*: nf4 or"),
    ],
)
def test_tensors_that_do_not_fit(model: Model, name: str, tensor: Any, message: str) -> None:
    model.tensors[f"{NAME}.{name}"] = tensor
    with pytest.raises(WeightsError, match=message):
        four_bit_matrices(model.source)


OFFSETS = {"digits": 10**400, "negative": -(10**400), "f64": 1e39, "nan": float("nan"), "text": "1"}


@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS.keys())
def test_offsets_that_are_no_f32(model: Model, offset: object) -> None:
    model.state |= {"nested_blocksize": 256, "nested_offset": offset}
    model.tensors[f"{NAME}.nested_absmax"] = np.zeros(1, np.float32)
    with pytest.raises(WeightsError, match=r"nested_offset .* supported: numbers that f32 holds"):
        four_bit_matrices(model.source)


def test_a_large_state_is_not_read(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(location: TensorLocation) -> np.ndarray:
        raise AssertionError(location.name)

    model.state["shape"] = " " * MAX_JSON_BYTES
    monkeypatch.setattr(four_bits, "read_bytes", read)
    with pytest.raises(WeightsError, match=r"__nf4 has more than \d+ bytes"):
        four_bit_matrices(model.source)


def test_a_state_that_is_no_object(model: Model) -> None:
    model.state = [1]  # type: ignore[assignment]
    with pytest.raises(WeightsError, match="its value a list is not supported; supported: an obj"):
        four_bit_matrices(model.source)


def test_matrices_that_cannot_be_converted(model: Model) -> None:
    at_load = LoadQuantization("bitsandbytes", str(model.path / "quantized"))
    model.state["shape"] = (12, 48)
    with pytest.raises(WeightsError, match=r"a\.weight cannot be converted: 48 columns"):
        convert(model.source, at_load, io.StringIO())
    model.state["shape"] = SHAPE
    model.magnitudes[1] = np.inf
    with pytest.raises(WeightsError, match="numbers that are not finite"):
        convert(model.source, at_load, io.StringIO())
    save_file({"a.weight": model.magnitudes}, model.path / "model.safetensors")
    source = ModelSource.open(model.path)
    assert convert(source, at_load, io.StringIO()) is source
