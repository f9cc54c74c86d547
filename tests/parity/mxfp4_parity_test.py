"""Logits of gpt-oss with experts in MXFP4 equal those of `transformers` on the values that these
hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.mxfp4_checkpoints import write_mxfp4
from tests.parity.one_request import difference

# Both sides compute in f32 with the same weights: q8_0 holds those of MXFP4.
TOLERANCE = 1e-4


@pytest.mark.parametrize("kind", EXECUTORS)
def test_experts_in_mxfp4(kind: str, tmp_path: Path) -> None:
    reference = write_mxfp4(tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= TOLERANCE


def test_scales_of_another_shape_are_refused(tmp_path: Path) -> None:
    write_mxfp4(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj_scales"
    tensors[name] = tensors[name][:, :, :-1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    message = r"down_proj_scales is u8 \[5, 96, 4\].* \[5, 96, 5\]"
    with pytest.raises(WeightsError, match=message):
        make_executor("torch", ModelSource.open(tmp_path))


def test_blocks_without_the_method_are_refused(tmp_path: Path) -> None:
    write_mxfp4(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"quantization_config"', '"other"'))
    with pytest.raises(WeightsError, match="experts.gate_up_proj' is missing"):
        make_executor("torch", ModelSource.open(tmp_path))
