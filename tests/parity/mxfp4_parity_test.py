"""Logits of gpt-oss with experts in MXFP4 equal those of `transformers` on the values that these
hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedModel

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import difference

# Both sides compute in f32 with the same weights: q8_0 holds those of MXFP4.
TOLERANCE = 1e-4
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_FLOATS = np.concatenate([_E2M1, -_E2M1])


def _random_experts(
    generator: np.random.Generator, shape: tuple[int, int, int]
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """`shape` [experts, out, in]: blocks and scales, and the values that they stand for."""
    experts, out, width = shape
    codes = generator.integers(0, 16, shape, np.uint8)
    scales = generator.integers(121, 125, (experts, out, width // 32), np.uint8)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).reshape(experts, out, width // 32, 16)
    powers = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
    values = _FLOATS[codes] * np.repeat(powers, 32, axis=-1)
    return torch.from_numpy(blocks), torch.from_numpy(scales), values


def _write(directory: Path) -> PreTrainedModel:
    """A checkpoint in `directory`; returns its reference."""
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=257,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=20,
        num_local_experts=5,
        num_experts_per_tok=2,
        sliding_window=7,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        attn_implementation="eager",
    )
    model = GptOssForCausalLM(config).eval()
    model.save_pretrained(directory)
    tensors = load_file(directory / "model.safetensors")
    generator = np.random.default_rng(1)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, width, out = tensors.pop(name).shape
        blocks, scales, values = _random_experts(generator, (experts, out, width))
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        stored = torch.from_numpy(values).transpose(1, 2).contiguous()
        model.get_parameter(name).data = stored
    save_file(tensors, directory / "model.safetensors")
    entries = json.loads((directory / "config.json").read_text())
    entries["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
    }
    (directory / "config.json").write_text(json.dumps(entries))
    return model


@pytest.mark.parametrize("kind", EXECUTORS)
def test_experts_in_mxfp4(kind: str, tmp_path: Path) -> None:
    reference = _write(tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= TOLERANCE


def test_scales_of_another_shape_are_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj_scales"
    tensors[name] = tensors[name][:, :, :-1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"down_proj_scales is u8 \[5, 96, 4\].* \[5, 96, 5\]"):
        make_executor("torch", ModelSource.open(tmp_path))
