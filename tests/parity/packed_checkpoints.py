"""Checkpoints of packed integers (AWQ, GPTQ v1 and v2, compressed-tensors' pack-quantized), written
from a tiny random Llama by the rules of the libraries that write such files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from tests.parity.tiny_models import tiny_llama

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scheme:
    """`layout`: awq, gptq, gptq_v2, pack_quantized; `group` columns share a scale, -1: a row's;
    `act_order`: groups are of columns that do not lie together."""

    layout: str
    bits: int = 4
    group: int = 32
    zeros: bool = True
    act_order: bool = False
    scale_dtype: torch.dtype = torch.float16


Overrides = Mapping[str, Scheme | None]


def write_packed(
    directory: Path, scheme: Scheme, overrides: Overrides | None = None
) -> PreTrainedModel:
    """Writes a checkpoint; returns the f32 model of the values that it holds. `overrides`: layers
    (such as down_proj) of another scheme, None: stored as they are."""
    overrides = overrides or {}
    model = tiny_llama(
        hidden_size=128, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4
    )
    tensors: dict[str, torch.Tensor] = {}
    for name, module in model.model.layers.named_modules():
        own = overrides.get(name.rpartition(".")[2], scheme)
        if isinstance(module, torch.nn.Linear) and own is not None:
            module.weight.data = torch.from_numpy(
                pack(f"model.layers.{name}", module.weight.detach().numpy(), own, tensors)
            )
    packed = {name.rsplit(".", 1)[0] for name in tensors}
    for name, value in model.state_dict().items():
        if name.rsplit(".", 1)[0] not in packed:
            tensors[name] = value.clone()
    save_file({name: value.contiguous() for name, value in tensors.items()}, _file(directory))
    config = model.config.to_dict() | {
        "architectures": ["LlamaForCausalLM"],
        "quantization_config": section(scheme, overrides),
    }
    (directory / "config.json").write_text(json.dumps(config, default=str))
    return model


def _file(directory: Path) -> Path:
    return directory / "model.safetensors"


def section(scheme: Scheme, overrides: Overrides) -> dict[str, Any]:
    """The quantization_config that the libraries write."""
    excluded = [name for name, own in overrides.items() if own is None]
    if scheme.layout == "awq":
        return {
            "quant_method": "awq",
            "bits": scheme.bits,
            "group_size": scheme.group,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": excluded or None,
        }
    if scheme.layout == "pack_quantized":
        groups = {("Linear",): scheme}
        groups |= {(f"re:.*{name}$",): own for name, own in overrides.items() if own is not None}
        return {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head", *(f"re:.*{name}" for name in excluded)],
            "config_groups": {
                f"group_{i}": {"targets": list(targets), "weights": pack_quantized(own)}
                for i, (targets, own) in enumerate(groups.items())
            },
        }
    dynamic: dict[str, Any] = {f"-:.*{name}": {} for name in excluded}
    dynamic |= {
        f"+:.*\\.{name}$": {"bits": own.bits, "group_size": own.group, "sym": not own.zeros}
        for name, own in overrides.items()
        if own is not None
    }
    return {
        "quant_method": "gptq",
        "bits": scheme.bits,
        "group_size": scheme.group,
        "desc_act": scheme.act_order,
        "sym": not scheme.zeros,
        "checkpoint_format": scheme.layout,
        "dynamic": dynamic or None,
    }


def pack_quantized(scheme: Scheme) -> dict[str, Any]:
    """The `weights` of a group of compressed-tensors."""
    return {
        "num_bits": scheme.bits,
        "type": "int",
        "symmetric": not scheme.zeros,
        "strategy": "channel" if scheme.group < 0 else "group",
        "group_size": None if scheme.group < 0 else scheme.group,
        "actorder": "group" if scheme.act_order else None,
    }


def pack(name: str, weight: Floats, scheme: Scheme, tensors: dict[str, torch.Tensor]) -> Floats:
    """Adds the tensors of the matrix of module `name`; returns its values."""
    rows, columns = weight.shape
    group = columns if scheme.group < 0 else scheme.group
    index = np.arange(columns) // group
    if scheme.act_order:
        index = np.random.default_rng(columns).permutation(index)
    q, scales, zeros = _quantize(weight, index, scheme)
    stored = torch.from_numpy(scales).to(scheme.scale_dtype)
    if scheme.layout == "pack_quantized":
        tensors[f"{name}.weight_packed"] = _words(q, scheme.bits, axis=1)
        tensors[f"{name}.weight_scale"] = stored
        tensors[f"{name}.weight_shape"] = torch.tensor([rows, columns])
        if scheme.zeros:
            tensors[f"{name}.weight_zero_point"] = _words(zeros, scheme.bits, axis=0)
        if scheme.act_order:
            tensors[f"{name}.weight_g_idx"] = torch.from_numpy(index.astype(np.int32))
    elif scheme.layout == "awq":
        order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
        places = (np.arange(0, rows, 8)[:, None] + order).reshape(-1)
        tensors[f"{name}.qweight"] = _words(q.T[:, places], 4, axis=1)
        tensors[f"{name}.qzeros"] = _words(zeros.T[:, places], 4, axis=1)
        tensors[f"{name}.scales"] = stored.T
    else:
        less = 1 if scheme.layout == "gptq" else 0
        stored_zeros = (zeros.T - less) % (1 << scheme.bits)
        tensors[f"{name}.qweight"] = _words(q.T, scheme.bits, axis=0)
        tensors[f"{name}.qzeros"] = _words(stored_zeros, scheme.bits, axis=1)
        tensors[f"{name}.scales"] = stored.T
        tensors[f"{name}.g_idx"] = torch.from_numpy(index.astype(np.int32))
    return ((q - zeros[:, index]) * stored.float().numpy()[:, index]).astype(np.float32)


def _quantize(weight: Floats, index: Ints, scheme: Scheme) -> tuple[Ints, Floats, Ints]:
    """Integers [rows, columns]; scales and zeros [rows, groups]."""
    groups, top = int(index.max()) + 1, (1 << scheme.bits) - 1
    scales = np.empty((weight.shape[0], groups), np.float32)
    zeros = np.full(scales.shape, (top + 1) // 2, np.int64)
    for g in range(groups):
        part = weight[:, index == g]
        low, high = part.min(axis=1), part.max(axis=1)
        if scheme.zeros:
            scales[:, g] = (high - low) / top
        else:
            scales[:, g] = np.maximum(-low, high) / (top // 2)
        scales[:, g] = torch.from_numpy(scales[:, g]).to(scheme.scale_dtype).float().numpy()
        if scheme.zeros:
            zeros[:, g] = np.clip(np.round(-low / scales[:, g]), 0, top).astype(np.int64)
    q = np.round(weight / scales[:, index]).astype(np.int64) + zeros[:, index]
    return np.clip(q, 0, top), scales, zeros


def _words(integers: Ints, bits: int, axis: int) -> torch.Tensor:
    """Integers along `axis` in words of 32 bits, the first lowest; the last word filled up. Those
    of 3 bits lie across words."""
    moved = np.moveaxis(integers, axis, -1)
    if bits == 3:
        stream = (moved[:, :, None] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(moved), -1)
        words = np.packbits(stream, axis=1, bitorder="little").view("<i4")
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(words, -1, axis)))
    per_word = 32 // bits
    padded = np.pad(moved, ((0, 0), (0, -moved.shape[1] % per_word)))
    words = np.zeros((padded.shape[0], padded.shape[1] // per_word), np.uint32)
    for place in range(per_word):
        words |= padded[:, place::per_word].astype(np.uint32) << np.uint32(bits * place)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(words.view(np.int32), -1, axis)))
