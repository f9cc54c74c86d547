"""Adapters of random weights in the format of PEFT, and the models that they make."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Kind:
    """What an adapter is like; `types` are ends of the names of the layers that it changes."""

    rank: int
    types: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float32
    alpha: float = 16
    use_rslora: bool = False
    use_dora: bool = False
    lora_bias: bool = False


def linear_layers(model: PreTrainedModel, types: tuple[str, ...] = ()) -> dict[str, nn.Linear]:
    """The linear layers of a decoder except its head, or those with these ends of names."""
    head = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and module is not head
        and (not types or name.endswith(types))
    }


def save_adapter(path: Path, model: PreTrainedModel, kind: Kind, seed: int) -> PreTrainedModel:
    """Writes an adapter of `model` to `path`; returns the model with the adapter merged."""
    random = torch.Generator().manual_seed(seed)
    merged: PreTrainedModel = copy.deepcopy(model)
    tensors: dict[str, torch.Tensor] = {}
    scale = kind.alpha / (math.sqrt(kind.rank) if kind.use_rslora else kind.rank)
    for name, layer in linear_layers(merged, kind.types).items():
        out, size = layer.weight.shape
        a = (torch.randn(kind.rank, size, generator=random) / math.sqrt(size)).to(kind.dtype)
        b = (0.1 * torch.randn(out, kind.rank, generator=random)).to(kind.dtype)
        prefix = f"base_model.model.{name}"
        tensors |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
        weight = layer.weight.data + scale * (b.float() @ a.float())
        if kind.use_dora:
            # As long as the rows of the weight, and up to half as long again.
            magnitude = layer.weight.data.norm(dim=1) * (1 + torch.rand(out, generator=random) / 2)
            tensors[f"{prefix}.lora_magnitude_vector"] = magnitude
            weight = weight * (magnitude / weight.norm(dim=1))[:, None]
        if kind.lora_bias:
            bias = torch.randn(out, generator=random) / 20
            tensors[f"{prefix}.lora_B.bias"] = bias
            base = 0 if layer.bias is None else layer.bias.data
            layer.bias = nn.Parameter(base + scale * bias)
        layer.weight.data = weight
    path.mkdir(parents=True, exist_ok=True)
    write_adapter(path, tensors, r=kind.rank, lora_alpha=kind.alpha, **_flags(kind))
    return merged


def write_adapter(path: Path, tensors: Mapping[str, torch.Tensor], **config: Any) -> None:
    """The files of an adapter."""
    written = {"peft_type": "LORA", "bias": "none", "fan_in_fan_out": False, **config}
    (path / "adapter_config.json").write_text(json.dumps(written))
    save_file(dict(tensors), path / "adapter_model.safetensors")


def _flags(kind: Kind) -> dict[str, bool]:
    return {
        "use_rslora": kind.use_rslora,
        "use_dora": kind.use_dora,
        "lora_bias": kind.lora_bias,
    }
