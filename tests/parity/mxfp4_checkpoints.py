"""Tiny gpt-oss checkpoints, whose experts may be in MXFP4."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedModel

_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_FLOATS = np.concatenate([_MAGNITUDES, -_MAGNITUDES])  # of each code
_EXPERTS = ("gate_up_proj", "down_proj")


def tiny_gpt_oss() -> PreTrainedModel:
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
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "sinks")):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif parameter.ndim > 1:
                parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
    return model


def write_mxfp4(directory: Path) -> PreTrainedModel:
    """A checkpoint in `directory` with random experts in MXFP4; returns the model of their
    values."""
    model = tiny_gpt_oss()
    model.save_pretrained(directory)
    tensors = load_file(directory / "model.safetensors")
    generator = np.random.default_rng(1)
    for name in [name for name in tensors if name.endswith(_EXPERTS)]:
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
