"""Matrices of BitNet have the values that their tensors say, or are refused."""

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
from pagemill.quantization.at_load.ternary import ternary_matrices
from pagemill.quantization.at_load.testing.decoded import read_matrix
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

SHAPE = (12, 40)
NAME = "model.layers.0.mlp.up_proj"
SCALE = np.float32(1.75)
OFFLINE = {"linear_class": "autobitlinear", "quantization_mode": "offline"}


class Model:
    """One matrix in four rows of a byte; `tensors` and `section` may be changed."""

    def __init__(self, path: Path, **section: Any) -> None:
        self.path = path
        self.section = {"quant_method": "bitnet", **section}
        self.codes = np.random.default_rng(5).integers(-1, 2, SHAPE)
        quarters = (self.codes + 1).astype(np.uint8).reshape(4, -1, SHAPE[1])
        packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
        self.tensors: dict[str, Any] = {
            f"{NAME}.weight": packed,
            f"{NAME}.weight_scale": np.array([SCALE], np.float32),
            "model.norm.weight": np.ones(SHAPE[1], np.float32),
        }

    @property
    def source(self) -> ModelSource:
        save_file(self.tensors, self.path / "model.safetensors")
        config = {"architectures": ["Any"], "quantization_config": self.section}
        (self.path / "config.json").write_text(json.dumps(config))
        return ModelSource.open(self.path)


@pytest.mark.parametrize(
    ("section", "value"),
    [(OFFLINE, SCALE), ({"linear_class": "bitlinear"}, 1 / SCALE), ({}, 1 / SCALE)],
)
def test_values_of_any_rows(section: dict[str, Any], value: float, tmp_path: Path) -> None:
    """The first library divides by the number, the second multiplies by it."""
    model = Model(tmp_path, **section)
    (matrix,) = ternary_matrices(model.source)
    assert (matrix.module, matrix.shape) == (NAME, SHAPE)
    assert set(matrix.parts) == model.tensors.keys() - {"model.norm.weight"}
    values = model.codes * np.float32(value)
    for begin, count in ((0, 12), (1, 1), (2, 8)):
        assert (matrix.rows(begin, count) == values[begin : begin + count]).all()


def test_real_numbers_are_rounded_by_their_mean(tmp_path: Path) -> None:
    model = Model(tmp_path, linear_class="autobitlinear", quantization_mode="online")
    real = np.random.default_rng(6).normal(size=SHAPE).astype(np.float32)
    model.tensors = {
        f"{NAME}.weight": real,
        "model.embed_tokens.weight": real,
        "model.layers.0.input_layernorm.weight": np.ones(SHAPE[1], np.float32),
    }
    (matrix,) = ternary_matrices(model.source)
    mean = np.abs(real).mean()
    expected = np.where(np.abs(real) > mean / 2, np.sign(real), 0)[3:9] * mean
    np.testing.assert_allclose(matrix.rows(3, 6), expected, rtol=1e-6)


def test_they_are_converted_and_other_tensors_stay(tmp_path: Path) -> None:
    """To int8 and scales of rows, for activations in 8 bits."""
    model = Model(tmp_path, **OFFLINE)
    at_load = LoadQuantization("bitnet", str(tmp_path / "quantized"))
    source = convert(model.source, at_load, io.StringIO())
    assert {t.name for t in source.tensors} == model.tensors.keys()
    np.testing.assert_allclose(
        read_matrix(source, NAME, SHAPE), model.codes * SCALE, rtol=1e-6, atol=0
    )
    (group,) = source.config["quantization_config"]["config_groups"].values()
    assert group["input_activations"]["num_bits"] == 8


@pytest.mark.parametrize(
    ("section", "tensors", "message"),
    [
        ({"linear_class": "other"}, {}, "linear_class 'other' .* supported: offline and online"),
        ({"quantization_mode": "both"}, {}, "quantization_mode 'both'"),
        ({"use_rms_norm": True}, {}, "or use_rms_norm is not supported"),
        ({}, {"weight": np.ones((3, 40), np.float32)}, "is f32 and .* they must be u8, and one"),
        ({}, {"weight_scale": np.ones(2, np.float32)}, r"weight_scale f32 \[2\]; they must be"),
        ({}, {"weight_scale": np.zeros(1, np.float32)}, r"weight_scale is 0.0, no scale"),
        ({}, {"weight_scale": np.full(1, 1e-45, np.float32)}, r"is 1.4\d+e-45, no scale"),
        ({"linear_class": []}, {}, "linear_class a list"),
        (OFFLINE, {"weight_scale": np.full(1, np.inf, np.float32)}, "is inf, no scale"),
    ],
)
def test_what_does_not_fit_is_refused(
    section: dict[str, Any], tensors: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = Model(tmp_path, **section)
    model.tensors |= {f"{NAME}.{part}": tensor for part, tensor in tensors.items()}
    with pytest.raises(WeightsError, match=message):
        ternary_matrices(model.source)
