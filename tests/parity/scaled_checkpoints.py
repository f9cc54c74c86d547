"""Checkpoints of int8 and fp8 matrices with scales, written from a model by the rules of
compressed-tensors, of the `fp8` method of transformers and of ModelOpt."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

_LARGEST = {"i8": 127.0, "f8_e4m3": 448.0}
_MODELOPT = {
    "producer": {"name": "modelopt", "version": "0.33.1"},
    "quantization": {"quant_algo": "FP8_PB_WO", "exclude_modules": ["lm_head"]},
}
_TORCH = {"i8": torch.int8, "f8_e4m3": torch.float8_e4m3fn}


@dataclass(frozen=True, slots=True)
class Scheme:
    """`strategy`: tensor, channel, or block or group (of `block` rows and columns); `method` fp8,
    modelopt or compressed-tensors; `dtype` i8 or f8_e4m3. Scales in uint8 are exponents, e8m0."""

    dtype: str
    strategy: str
    method: str = "compressed-tensors"
    block: tuple[int, int] = (128, 128)
    scale_dtype: torch.dtype = torch.float32
    head: bool = False
    """True if the vocabulary projection is quantized, too."""


SCHEMES = {
    "w8a8": Scheme("i8", "channel", scale_dtype=torch.bfloat16),
    "w8a8-tensor": Scheme("i8", "tensor", head=True),
    "fp8-channel": Scheme("f8_e4m3", "channel"),
    "fp8-tensor": Scheme("f8_e4m3", "tensor", "fp8", head=True),
    "fp8-block": Scheme("f8_e4m3", "block", "fp8", (32, 48)),
    "fp8-block-modelopt": Scheme("f8_e4m3", "block", "modelopt"),
    "fp8-block-channel": Scheme("f8_e4m3", "block", block=(20, 32), scale_dtype=torch.bfloat16),
    "mxfp8": Scheme("f8_e4m3", "group", block=(1, 32), scale_dtype=torch.uint8),
}


def write_scaled(model: PreTrainedModel, directory: Path, scheme: Scheme) -> PreTrainedModel:
    """Writes `model` quantized; returns the f32 model of exactly the values that were written."""
    reference = copy.deepcopy(model).float()
    tensors: dict[str, torch.Tensor] = {}
    tied = bool(model.config.tie_word_embeddings)
    for name, parameter in reference.named_parameters():
        head = name == "lm_head.weight" and scheme.head and not tied
        if not head and (not name.startswith("model.layers.") or parameter.ndim != 2):
            # Stored in bf16, as such checkpoints are.
            parameter.data = parameter.data.bfloat16().float()
            tensors[name] = parameter.data.bfloat16()
            continue
        parameter.data = add_matrix(name, parameter.data, scheme, tensors)
    directory.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(directory)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [type(model).__name__]
    if scheme.method == "modelopt":
        (directory / "hf_quant_config.json").write_text(json.dumps(_MODELOPT))
    else:
        config["quantization_config"] = section(scheme)
    path.write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors")
    return reference.eval()


def write_scaled_experts(directory: Path, scheme: Scheme, part: str = ".experts.") -> None:
    """Quantizes the experts, or other matrices with `part` in their names, of the model in
    `directory`; afterwards `directory` has the f32 model of exactly the values in `directory /
    "scaled"`."""
    values, scaled = load_file(directory / "model.safetensors"), dict[str, torch.Tensor]()
    for name, value in values.items():
        if part in name:
            values[name] = add_matrix(name, value.float(), scheme, scaled)
        else:
            scaled[name] = value
    save_file(values, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "scaled").mkdir()
    save_file(scaled, directory / "scaled" / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = section(scheme)
    (directory / "scaled" / "config.json").write_text(json.dumps(config))


def add_matrix(
    name: str, weight: torch.Tensor, scheme: Scheme, tensors: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Adds the tensors of the matrix `name`; returns its values."""
    quantized, scales = _quantize(weight, scheme)
    suffix = "_scale_inv" if scheme.strategy == "block" and scheme.method == "fp8" else "_scale"
    tensors[name] = quantized
    tensors[name + suffix] = scales[:, None, :, None] if scheme.method == "modelopt" else scales
    return quantized.float() * _spread(_numbers(scales), weight.shape, scheme)


def _quantize(weight: torch.Tensor, scheme: Scheme) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix in 8 bits, and scales that bring the largest of each block to the largest code."""
    m, k = weight.shape
    if scheme.strategy == "tensor":
        largest = weight.abs().max().reshape(())
    elif scheme.strategy == "channel":
        largest = weight.abs().amax(1, keepdim=True)
    else:
        rows, columns = scheme.block
        padded = torch.zeros(-(-m // rows) * rows, -(-k // columns) * columns)
        padded[:m, :k] = weight.abs()
        largest = padded.reshape(-1, rows, padded.shape[1] // columns, columns).amax((1, 3))
    if scheme.scale_dtype == torch.uint8:
        scales = (largest.log2().floor() - 8 + 127).to(torch.uint8)  # e4m3 goes up to 1.75 * 2^8
    else:
        scales = (largest / _LARGEST[scheme.dtype]).to(scheme.scale_dtype)
    scaled = weight / _spread(_numbers(scales), weight.shape, scheme)
    limit = _LARGEST[scheme.dtype]
    scaled = scaled.clamp(-limit, limit)
    return (scaled.round() if scheme.dtype == "i8" else scaled).to(_TORCH[scheme.dtype]), scales


def _numbers(scales: torch.Tensor) -> torch.Tensor:
    if scales.dtype == torch.uint8:
        return torch.exp2(scales.float() - 127)
    return scales.float()


def _spread(scales: torch.Tensor, shape: torch.Size, scheme: Scheme) -> torch.Tensor:
    """A scale for each element."""
    if scheme.strategy in ("block", "group"):
        rows, columns = scheme.block
        scales = scales.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
        return scales[: shape[0], : shape[1]]
    return scales.expand(shape)


def section(scheme: Scheme) -> dict[str, Any]:
    """`quantization_config` of a checkpoint in this scheme."""
    ignored = [] if scheme.head else ["lm_head"]
    if scheme.method == "fp8":
        block = list(scheme.block) if scheme.strategy == "block" else None
        return {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": block,
            "modules_to_not_convert": ignored,
        }
    kind = "int" if scheme.dtype == "i8" else "float"
    numbers = {"num_bits": 8, "type": kind, "symmetric": True}
    weights = numbers | {"strategy": scheme.strategy, "dynamic": False}
    if scheme.strategy == "block":
        weights["block_structure"] = list(scheme.block)
    if scheme.strategy == "group":
        weights["group_size"] = scheme.block[1]
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": numbers | {"strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors",
        "format": f"{'mxfp8' if scheme.strategy == 'group' else kind}-quantized",
        "ignore": ignored,
        "config_groups": {"group_0": group},
    }
