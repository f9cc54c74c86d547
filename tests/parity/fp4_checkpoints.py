"""Tiny checkpoints in MXFP4 and NVFP4: of gpt-oss, whose experts may be in MXFP4, of a Llama, and
of experts in matrices of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedModel

from tests.parity.tiny_models import tiny_llama

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


def write_mxfp4_matrices(directory: Path) -> PreTrainedModel:
    """A Llama with all matrices of its layers in MXFP4, as compressed-tensors writes them; returns
    the model of their values."""
    model = tiny_llama(intermediate_size=160)  # rows of whole groups
    model.save_pretrained(directory)
    tensors = load_file(directory / "model.safetensors")
    generator = np.random.default_rng(1)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        out, width = tensors.pop(name).shape
        blocks, scales, values = _random_experts(generator, (1, out, width))
        tensors[f"{name}_packed"] = blocks.reshape(out, width // 2)
        tensors[f"{name}_scale"] = scales.reshape(out, width // 32)
        model.get_parameter(name).data = torch.from_numpy(values[0])
    save_file(tensors, directory / "model.safetensors")
    entries = json.loads((directory / "config.json").read_text())
    weights = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
    entries["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    (directory / "config.json").write_text(json.dumps(entries))
    return model


def write_nvfp4(directory: Path, parts: tuple[str, ...], *, divides: bool) -> Path:
    """A checkpoint in `directory / "nvfp4"` of the model in `directory`, whose matrices with one of
    `parts` in their names are rounded to NVFP4, as compressed-tensors writes them if the factor
    `divides`, else as ModelOpt does; afterwards `directory` has the f32 model of their values."""
    values, stored = load_file(directory / "model.safetensors"), dict[str, torch.Tensor]()
    for name, value in values.items():
        if value.ndim != 2 or not any(part in name for part in parts):
            stored[name] = value
            continue
        packed, scales, factor, values[name] = _as_nvfp4(value.float(), 2.0 ** (len(stored) % 5))
        stored |= {f"{name}_scale": scales, f"{name}_packed" if divides else name: packed}
        if divides:
            stored[f"{name}_global_scale"] = 1 / factor.reshape(1)
        else:
            stored[f"{name}_scale_2"] = factor
    save_file(values, directory / "model.safetensors", metadata={"format": "pt"})
    target = directory / "nvfp4"
    target.mkdir()
    save_file(stored, target / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    compressed = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    config["quantization_config"] = compressed if divides else modelopt
    (target / "config.json").write_text(json.dumps(config))
    return target


def _as_nvfp4(
    weight: torch.Tensor, larger: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two floats a byte, e4m3 scales of 16 columns, the factor, and the values that they stand
    for. The largest of a group is 6; the factor is `larger` times the one for scales up to 448."""
    out, width = weight.shape
    groups = weight.reshape(out, width // 16, 16)
    largest = groups.abs().amax(-1)
    # A power of two, so that its inverse is exact.
    factor = larger * torch.exp2(torch.ceil(torch.log2(largest.max() / (6 * 448))))
    scales = (largest / 6 / factor).to(torch.float8_e4m3fn)
    spread = (scales.float() * factor)[..., None]
    distances = (groups / spread).nan_to_num()[..., None] - torch.from_numpy(_FLOATS)
    codes = distances.abs().argmin(-1).to(torch.uint8)
    values = (torch.from_numpy(_FLOATS)[codes.long()] * spread).reshape(out, width)
    flat = codes.reshape(out, width)
    return flat[:, 0::2] | flat[:, 1::2] << 4, scales, factor.float(), values


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
