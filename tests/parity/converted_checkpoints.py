"""Checkpoints of bitsandbytes, BitNet, HQQ and torchao, written from a model by the rules of these
libraries."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

Floats = npt.NDArray[np.float32]

# Dettmers et al., "QLoRA", 2023: quantiles of a normal distribution.
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_FP4_HALF = (0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
TABLES = {
    "nf4": np.array(_NF4, np.float32),
    "fp4": np.array([*_FP4_HALF, *(-number for number in _FP4_HALF)], np.float32),
}
_LARGEST_CODES = np.linspace(-1, 1, 256, dtype=np.float32)


class _TorchAo(NamedTuple):
    """Classes of a tensor and of a configuration, its fields, and the largest number of `dtype`."""

    tensor: str
    config: str
    fields: dict[str, Any]
    dtype: torch.dtype = torch.int8
    largest: float = 127


_E4M3 = {"weight_dtype": {"_type": "torch.dtype", "_data": "float8_e4m3fn"}}
_TORCHAO = {
    "int4": _TorchAo("Int4Tensor", "Int4WeightOnlyConfig", {"group_size": 32}, largest=15),
    "int8": _TorchAo("Int8Tensor", "Int8WeightOnlyConfig", {}),
    "float8": _TorchAo("Float8Tensor", "Float8WeightOnlyConfig", _E4M3, torch.float8_e4m3fn, 448),
}


@dataclass(frozen=True, slots=True)
class FourBits:
    """`block` consecutive elements share a magnitude; if `nested`, magnitudes are codes, too, 256
    of which share a number; `storage`: what codes are stored as."""

    kind: str = "nf4"
    block: int = 64
    nested: bool = False
    storage: torch.dtype = torch.uint8


def write_four_bits(model: PreTrainedModel, directory: Path, scheme: FourBits) -> PreTrainedModel:
    """Writes `model`; returns the f32 model of exactly the values that were written."""

    def quantize(name: str, weight: Floats, tensors: dict[str, torch.Tensor]) -> Floats:
        return add_four_bits(name, weight, scheme, tensors)

    section = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": scheme.kind,
    }
    return _write(model, directory, quantize, section)


def write_int8(model: PreTrainedModel, directory: Path) -> PreTrainedModel:
    """As `write_four_bits`, in int8."""

    def quantize(name: str, weight: Floats, tensors: dict[str, torch.Tensor]) -> Floats:
        maxima = np.abs(weight).max(1)
        q = np.rint(weight * (127 / maxima[:, None])).astype(np.int8)
        tensors[name] = torch.from_numpy(q)
        module = name.removesuffix(".weight")
        tensors[f"{module}.SCB"] = torch.from_numpy(maxima)
        tensors[f"{module}.weight_format"] = torch.tensor(0, dtype=torch.uint8)
        return q.astype(np.float32) * (maxima[:, None] / np.float32(127))

    section = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}
    return _write(model, directory, quantize, section)


def write_hqq(model: PreTrainedModel, directory: Path, axis: int) -> PreTrainedModel:
    """As `write_four_bits`, in HQQ's 4 bits, in groups of 64 along `axis`; not optimized."""

    def quantize(name: str, weight: Floats, tensors: dict[str, torch.Tensor]) -> Floats:
        groups = weight.reshape((-1, 64) if axis == 1 else (64, -1))
        low, high = groups.min(axis, keepdims=True), groups.max(axis, keepdims=True)
        scale = ((high - low) / 15).astype(np.float16)
        zero = (-low / scale).astype(np.float16)
        q = np.clip(np.rint(groups / scale + zero), 0, 15).astype(np.uint8)
        half = len(q) // 2
        module = name.removesuffix(".weight")
        settings = {"nbits": 4, "group_size": 64, "axis": axis, "optimize": 1}
        for key, value in settings.items():
            tensors[f"{module}.{key}"] = torch.tensor(value, dtype=torch.int32)
        tensors[f"{module}.shape"] = torch.tensor(weight.shape)
        tensors[f"{module}.packing"] = torch.frombuffer(bytearray(b"4bit_u8"), dtype=torch.uint8)
        tensors[f"{module}.W_q"] = torch.from_numpy(q[:half] << 4 | q[half:])
        tensors[f"{module}.scale"] = torch.from_numpy(scale)
        tensors[f"{module}.zero"] = torch.from_numpy(zero)
        values = (q - zero.astype(np.float32)) * scale.astype(np.float32)
        return values.reshape(weight.shape)

    params = {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": axis}}
    section = {"quant_method": "hqq", "quant_config": params, "skip_modules": ["lm_head"]}
    return _write(model, directory, quantize, section)


@torch.no_grad()
def write_bitnet(model: PreTrainedModel, directory: Path, mode: str) -> PreTrainedModel:
    """As `write_four_bits`, in three values, packed if `mode` is "offline"; the reference rounds
    what linear layers of its layers read to 8 bits, as the library does."""

    def quantize(name: str, weight: Floats, tensors: dict[str, torch.Tensor]) -> Floats:
        mean = np.abs(weight).mean()
        codes = np.clip(np.rint(weight / mean), -1, 1)
        if mode == "online":
            tensors[name] = torch.from_numpy(weight)
            return codes * mean
        quarters = (codes + 1).astype(np.uint8).reshape(4, -1, weight.shape[1])
        packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
        tensors[name] = torch.from_numpy(packed)
        tensors[f"{name}_scale"] = torch.tensor([mean])
        return codes * mean

    def rounded(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        del module
        scale = 127 / inputs[0].abs().amax(-1, keepdim=True).clamp(min=1e-5)
        return (inputs[0] * scale).round() / scale

    section = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": mode}
    reference = _write(model, directory, quantize, section)
    for module in reference.model.layers.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(rounded)
    return reference


def write_torchao(model: PreTrainedModel, directory: Path, kind: str) -> PreTrainedModel:
    """As `write_four_bits`, in torchao's tensors: "int8" and "float8", with a scale for each row;
    "int4", with a scale and the number in the middle for 32 columns."""
    texts: dict[str, str] = {}
    of = _TORCHAO[kind]

    def quantize(name: str, weight: Floats, tensors: dict[str, torch.Tensor]) -> Floats:
        stem = name.removesuffix("weight") + "_weight_"
        block = 32 if kind == "int4" else weight.shape[1]
        fields = {"block_size": [1, block], "shape": list(weight.shape)}
        texts[name] = json.dumps({"_type": of.tensor, "_data": fields})
        groups = torch.from_numpy(weight).reshape(len(weight), -1, block)
        low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
        if kind != "int4":
            scale = torch.maximum(-low, high) / of.largest
            scaled = groups / scale
            q = (scaled.round() if kind == "int8" else scaled).to(of.dtype)
            tensors |= {f"{stem}qdata": q.reshape(weight.shape), f"{stem}scale": scale[:, 0]}
            return (q.float() * scale).reshape(weight.shape).numpy()
        scale = ((high - low) / of.largest).bfloat16().float()
        middle = (low + 8 * scale).bfloat16().float()
        q = ((groups - middle) / scale).round().clamp(-8, 7)
        codes = q.reshape(weight.shape).to(torch.int8)
        tensors[f"{stem}qdata"] = codes[:, 1::2] << 4 | codes[:, 0::2] & 15
        for part, numbers in (("scale", scale), ("zero_point", middle)):
            tensors[stem + part] = numbers[:, :, 0].T.bfloat16()
        return (q * scale + middle).reshape(weight.shape).numpy()

    stated = {"_type": of.config, "_version": 2, "_data": of.fields}
    section = {"quant_method": "torchao", "quant_type": {"default": stated}}
    return _write(model, directory, quantize, section, texts)


def add_four_bits(
    name: str, weight: Floats, scheme: FourBits, tensors: dict[str, torch.Tensor]
) -> Floats:
    """Adds the tensors of the matrix `name`; returns its values."""
    table, flat = TABLES[scheme.kind], weight.reshape(-1)
    blocks = -(-flat.size // scheme.block)
    padded = np.zeros(blocks * scheme.block, np.float32)
    padded[: flat.size] = flat
    magnitudes = np.abs(padded.reshape(blocks, scheme.block)).max(1)
    state: dict[str, Any] = {
        "quant_type": scheme.kind,
        "blocksize": scheme.block,
        "dtype": "bfloat16",
        "shape": list(weight.shape),
    }
    if scheme.nested:
        offset = float(magnitudes.mean())
        outer = np.array(
            [np.abs(magnitudes[at : at + 256] - offset).max() for at in range(0, blocks, 256)]
        )
        of_blocks = np.repeat(outer, 256)[:blocks].astype(np.float32)
        scaled = (magnitudes - offset) / of_blocks
        codes = np.abs(scaled[:, None] - _LARGEST_CODES).argmin(1).astype(np.uint8)
        magnitudes = _LARGEST_CODES[codes] * of_blocks + np.float32(offset)
        tensors[f"{name}.absmax"] = torch.from_numpy(codes)
        tensors[f"{name}.nested_absmax"] = torch.from_numpy(outer.astype(np.float32))
        tensors[f"{name}.nested_quant_map"] = torch.from_numpy(_LARGEST_CODES.copy())
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
    else:
        tensors[f"{name}.absmax"] = torch.from_numpy(magnitudes)
    of_elements = np.repeat(magnitudes, scheme.block)[: flat.size]
    codes = np.abs((flat / of_elements)[:, None] - table).argmin(1).astype(np.uint8)
    stored = torch.from_numpy(codes[0::2] << 4 | codes[1::2])
    tensors[name] = stored.view(scheme.storage).reshape(-1, 1)
    tensors[f"{name}.quant_map"] = torch.from_numpy(table.copy())
    text = torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)
    tensors[f"{name}.quant_state.bitsandbytes__{scheme.kind}"] = text
    return (table[codes] * of_elements).astype(np.float32).reshape(weight.shape)


def _write(
    model: PreTrainedModel,
    directory: Path,
    quantize: Any,
    section: dict[str, Any],
    texts: dict[str, str] | None = None,
) -> PreTrainedModel:
    reference = copy.deepcopy(model).float()
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in reference.named_parameters():
        if name.startswith("model.layers.") and parameter.ndim == 2:
            values = quantize(name, parameter.detach().numpy(), tensors)
            parameter.data = torch.from_numpy(values)
        else:
            parameter.data = parameter.data.bfloat16().float()
            tensors[name] = parameter.data.bfloat16()
    directory.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(directory)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [type(model).__name__]
    config["quantization_config"] = section
    path.write_text(json.dumps(config))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        directory / "model.safetensors",
        texts,
    )
    return reference.eval()
