"""Scales in bytes become f32, each for some columns of a row."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagemill.config.load_quantization import LoadQuantization
from pagemill.quantization.at_load.converted_source import convert
from pagemill.quantization.scaled import group_scales
from pagemill.quantization.table import GROUP_SCALES
from pagemill.weights.errors import WeightsError
from pagemill.weights.read import read_f32
from pagemill.weights.source import ModelSource

BYTES = torch.tensor([[127, 0], [128, 254], [126, 120]], dtype=torch.uint8)


def model(path: Path, scales: torch.Tensor) -> ModelSource:
    """Matrices with scales for 32 columns, for a row, and for two rows."""
    elements = torch.ones(len(scales), 64).to(torch.float8_e4m3fn)
    tensors = {
        "a.weight": elements,
        "a.weight_scale": scales,
        "rows.weight": elements.clone(),
        "rows.weight_scale_inv": scales[:, :1].clone(),
        "blocks.weight": elements.clone(),
        "blocks.weight_scale": scales[:2].clone(),
        "integers.weight": torch.ones(len(scales), 64, dtype=torch.int8),
        "integers.weight_scale": scales.clone(),
        "c.weight_scale": scales.clone(),
    }
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"architectures": ["Any"]}))
    return ModelSource.open(path)


def test_those_of_groups_are_converted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = model(tmp_path, BYTES)
    assert [tensor.name for tensor in group_scales(source)] == ["a.weight_scale"]
    at_load = LoadQuantization(GROUP_SCALES, str(tmp_path / "quantized"))
    with caplog.at_level("INFO", "pagemill.quantization"):
        converted = convert(source, at_load, io.StringIO())
    assert "scales of 1 matrices are converted: " in caplog.text
    changed = set(converted.tensors) - set(source.tensors)
    assert [tensor.name for tensor in changed] == ["a.weight_scale"]
    values = np.ldexp(np.float32(1), BYTES.numpy().astype(int) - 127)
    assert (read_f32(converted.tensor("a.weight_scale")) == values).all()
    assert converted.config == source.config
    assert not group_scales(converted)


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    at_load = LoadQuantization(GROUP_SCALES, str(tmp_path / "quantized"))
    with pytest.raises(WeightsError, match="a.weight_scale has numbers that are not finite"):
        convert(model(tmp_path, BYTES + 1), at_load, io.StringIO())
