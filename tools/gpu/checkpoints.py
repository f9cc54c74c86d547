"""Checkpoints of random weights with the shapes of real models, written in seconds.

    python -m tools.gpu.checkpoints llama-8b bf16 FOLDER

Numbers are drawn once and repeated, from another place for each tensor, so that activations keep
their size. A layer in fp8 has e4m3 values and a scale for each block of 128 x 128; one in awq has
integers of 4 bits, and a scale for each 128 columns of a row; one in nvfp4 pairs of e2m1 values,
and a scale for each 16 of them.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tools.gpu.records import say

_BLOCK = 128
_TABLE = 2**23 + 1  # numbers; odd, so that no two rows of a matrix are equal
_E4M3_SIZE = 32.0  # of a typical e4m3 value, whose largest is 448
_E2M1_SCALE = 0x53  # 11 in e4m3, with which typical e2m1 values have that size, too
_NVFP4_GROUP = 16
_U4_DEVIATION = 4.61  # of integers from 0 to 15
_ZERO_POINT = 8  # of all of them
_THREADS = 8
_INTERVAL = 4  # every fourth layer of some models has attention
_TAPS = 4  # of convolutions
Bytes = npt.NDArray[np.uint8]


def _llama(
    hidden: int, inner: int, layers: int, heads: int, kv: int, vocab: int, head_dim: int = 0
) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        "dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head_dim or hidden // heads,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    }


def _qwen3_moe(layers: int, inner: int, experts: int, choices: int, **sizes: int) -> dict[str, Any]:
    return {
        **_llama(inner=inner, layers=layers, **sizes),
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "rms_norm_eps": 1e-6,
        "moe_intermediate_size": inner,
        "num_experts": experts,
        "num_experts_per_tok": choices,
        "norm_topk_prob": True,
    }


def _qwen3_next(layers: int, inner: int, groups: int, size: int, **sizes: int) -> dict[str, Any]:
    """Without experts. Layers of the gated delta rule have two heads for each group, of `size`."""
    return {
        **_llama(inner=inner, layers=layers, **sizes),
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "rms_norm_eps": 1e-6,
        "norm_weight_offset": 0,  # weights are 1
        "full_attention_interval": _INTERVAL,
        "linear_num_key_heads": groups,
        "linear_num_value_heads": 2 * groups,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_conv_kernel_dim": _TAPS,
    }


def _deepseek_v3(rank: int, latent: int, nope: int, rope: int, **sizes: int) -> dict[str, Any]:
    """Without experts. `rank` of queries, `latent` of keys and values, whose heads have `nope`."""
    return {
        **_llama(kv=sizes["heads"], **sizes),
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "rms_norm_eps": 1e-6,
        "first_k_dense_replace": sizes["layers"],
        "q_lora_rank": rank,
        "kv_lora_rank": latent,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": nope,
    }


MODELS: Mapping[str, dict[str, Any]] = {
    "llama-1b": _llama(2048, 8192, 16, 32, 8, 128256),
    "llama-8b": _llama(4096, 14336, 32, 32, 8, 128256),
    # A quarter of the layers of Qwen3-30B-A3B, whose all would take minutes to write.
    "qwen3-30b-quarter": _qwen3_moe(
        12, 768, 128, 8, hidden=2048, heads=32, kv=4, vocab=151936, head_dim=128
    ),
    # A quarter of the layers of Qwen3-Next 80B-A3B, with one product for the experts of a token.
    "qwen3-next-dense": _qwen3_next(
        12, 5632, 16, 128, hidden=2048, heads=16, kv=2, vocab=151936, head_dim=256
    ),
    # Layers of DeepSeek-V3, of which the first three have no experts.
    "deepseek-v3-dense": _deepseek_v3(
        1536, 512, 128, 64, hidden=7168, inner=18432, layers=6, heads=128, vocab=129280
    ),
    "tiny-latents": _deepseek_v3(
        48, 32, 16, 16, hidden=64, inner=160, layers=1, heads=2, vocab=300
    ),
    "tiny-states": _qwen3_next(4, 160, 1, 16, hidden=64, heads=2, kv=1, vocab=300, head_dim=32),
    "tiny-experts": _qwen3_moe(1, 32, 8, 2, hidden=64, heads=2, kv=1, vocab=300, head_dim=32),
    # Its step takes the device so little that the host's work decides.
    "one-layer": _llama(256, 256, 1, 4, 2, 512),
    "tiny": _llama(64, 160, 1, 2, 1, 300),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`dtype` as safetensors names it, I32 being words of eight integers, and U8 pairs of e2m1
    numbers; `deviation` of its numbers, or of those that it scales; 0: all are 1, or the zero
    point, or what makes e2m1 numbers as large as e4m3 ones."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    deviation: float

    @property
    def bytes(self) -> int:
        """Of its data."""
        sizes = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "F8_E4M3": 1, "U8": 1}
        return int(np.prod(self.shape)) * sizes[self.dtype]


# The name of a part of a matrix, its type and shape, and whether its numbers are drawn.
_Part = tuple[str, str, tuple[int, ...], bool]


@dataclass(frozen=True, slots=True)
class _Format:
    """How a matrix of some rows and columns is stored, in groups of columns, and what config.json
    says of it."""

    parts: Callable[[int, int, int], list[_Part]]
    quantization: Callable[[int], dict[str, Any]]


def _fp8_parts(rows: int, columns: int, _: int) -> list[_Part]:
    blocks = (-(-rows // _BLOCK), -(-columns // _BLOCK))
    values: _Part = ("weight", "F8_E4M3", (rows, columns), True)
    return [values, ("weight_scale_inv", "F32", blocks, True)]


def _awq_parts(rows: int, columns: int, group: int) -> list[_Part]:
    return [
        ("qweight", "I32", (columns, rows // 8), True),
        ("qzeros", "I32", (columns // group, rows // 8), False),
        ("scales", "F16", (columns // group, rows), True),
    ]


def _nvfp4_parts(rows: int, columns: int, _: int) -> list[_Part]:
    return [
        ("weight", "U8", (rows, columns // 2), True),
        ("weight_scale", "F8_E4M3", (rows, columns // _NVFP4_GROUP), False),
        ("weight_scale_2", "F32", (), True),
    ]


_FORMATS: Mapping[str, _Format] = {
    "bf16": _Format(
        lambda rows, columns, _: [("weight", "BF16", (rows, columns), True)],
        lambda _: {},
    ),
    "fp8": _Format(
        _fp8_parts,
        lambda _: {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [_BLOCK, _BLOCK],
        },
    ),
    "awq": _Format(
        _awq_parts,
        lambda group: {
            "quant_method": "awq",
            "bits": 4,
            "group_size": group,
            "zero_point": True,
            "version": "gemm",
        },
    ),
    "nvfp4": _Format(
        _nvfp4_parts,
        lambda _: {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "group_size": _NVFP4_GROUP,
            "ignore": ["lm_head"],
        },
    ),
}
WEIGHTS = tuple(_FORMATS)


def _group(config: Mapping[str, Any]) -> int:
    """Columns of a group: a small matrix does not have a whole block."""
    return math.gcd(_BLOCK, config["hidden_size"], config["intermediate_size"])


# By their names in a layer: rows and columns, and the shapes of what is stored in bf16.
_Matrices = dict[str, tuple[int, int]]
_Small = dict[str, tuple[int, ...]]


def _mlp(prefix: str, hidden: int, inner: int) -> _Matrices:
    return {
        f"{prefix}.gate_proj": (inner, hidden),
        f"{prefix}.up_proj": (inner, hidden),
        f"{prefix}.down_proj": (hidden, inner),
    }


def _attention(config: Mapping[str, Any]) -> tuple[_Matrices, _Small]:
    hidden, size = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    gated = 2 if config["model_type"] == "qwen3_next" else 1  # rows of q and of its gate
    matrices = {
        "self_attn.q_proj": (gated * q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
    }
    normed = config["model_type"] != "llama"
    return matrices, {f"self_attn.{name}_norm.weight": (size,) for name in "qk" if normed}


def _delta(config: Mapping[str, Any]) -> tuple[_Matrices, _Small]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    matrices = {
        "linear_attn.in_proj_qkvz": (2 * keys + 2 * values, hidden),
        "linear_attn.in_proj_ba": (2 * heads, hidden),
        "linear_attn.out_proj": (hidden, values),
    }
    return matrices, {
        "linear_attn.conv1d.weight": (2 * keys + values, 1, _TAPS),
        "linear_attn.A_log": (heads,),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.norm.weight": (config["linear_value_head_dim"],),
    }


def _latent(config: Mapping[str, Any]) -> tuple[_Matrices, _Small]:
    hidden, heads, rank = (
        config[key] for key in ("hidden_size", "num_attention_heads", "q_lora_rank")
    )
    latent, nope, rope = (
        config[key] for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
    )
    matrices = {
        "self_attn.q_a_proj": (rank, hidden),
        "self_attn.q_b_proj": (heads * (nope + rope), rank),
        "self_attn.kv_a_proj_with_mqa": (latent + rope, hidden),
        "self_attn.kv_b_proj": (2 * heads * nope, latent),
        "self_attn.o_proj": (hidden, heads * nope),
    }
    return matrices, {
        "self_attn.q_a_layernorm.weight": (rank,),
        "self_attn.kv_a_layernorm.weight": (latent,),
    }


def _layer(config: Mapping[str, Any], index: int) -> tuple[_Matrices, _Small]:
    """A layer's matrices in the format of the weights, and its other tensors."""
    hidden = config["hidden_size"]
    if (index + 1) % config.get("full_attention_interval", 1) > 0:
        matrices, small = _delta(config)
    else:
        matrices, small = (_latent if "kv_lora_rank" in config else _attention)(config)
    small |= {f"{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    if not (experts := config.get("num_experts")):
        return matrices | _mlp("mlp", hidden, config["intermediate_size"]), small
    for expert in range(experts):
        matrices |= _mlp(f"mlp.experts.{expert}", hidden, config["moe_intermediate_size"])
    return matrices, small | {"mlp.gate.weight": (experts, hidden)}


def tensors(config: Mapping[str, Any], weights: str) -> list[StoredTensor]:
    """What a checkpoint of `config` stores, with the matrices of layers in `weights`."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    found = [
        StoredTensor("model.embed_tokens.weight", "BF16", (vocab, hidden), 1.0),
        StoredTensor("model.norm.weight", "BF16", (hidden,), 0),
        StoredTensor("lm_head.weight", "BF16", (vocab, hidden), hidden**-0.5),
    ]
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}."
        matrices, small = _layer(config, index)
        for name, shape in small.items():
            deviation = shape[-1] ** -0.5 if len(shape) > 1 else 0
            found.append(StoredTensor(f"{prefix}{name}", "BF16", shape, deviation))
        for name, (rows, columns) in matrices.items():
            parts = _FORMATS[weights].parts(rows, columns, _group(config))
            found += [
                StoredTensor(f"{prefix}{name}.{part}", dtype, shape, columns**-0.5 if drawn else 0)
                for part, dtype, shape, drawn in parts
            ]
    return found


def write(model: str, weights: str, folder: Path) -> int:
    """Write the checkpoint in place of all in `folder`; returns the bytes of its tensors."""
    config = dict(MODELS[model])
    if quantization := _FORMATS[weights].quantization(_group(config)):
        config["quantization_config"] = quantization
    stored = tensors(config, weights)
    ends = list(itertools.accumulate(tensor.bytes for tensor in stored))
    header = _header(stored, ends)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + ends[-1])
    data = np.memmap(path, np.uint8, "r+", len(header))
    tables = {key: _table(*key) for key in {(tensor.dtype, tensor.deviation) for tensor in stored}}
    with ThreadPoolExecutor(_THREADS) as pool:
        jobs = [
            pool.submit(
                _fill, data[end - tensor.bytes : end], tables[tensor.dtype, tensor.deviation], i
            )
            for i, (end, tensor) in enumerate(zip(ends, stored, strict=True))
        ]
        for job in jobs:
            job.result()
    (folder / "config.json").write_text(json.dumps(config))
    return ends[-1]


def _header(stored: list[StoredTensor], ends: list[int]) -> bytes:
    """What precedes the data of tensors, each of which ends at one of `ends`."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for tensor, end in zip(stored, ends, strict=True):
        described[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [end - tensor.bytes, end],
        }
    text = json.dumps(described).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def _table(dtype: str, deviation: float) -> Bytes:
    """The bytes of random numbers of this type and size."""
    if dtype == "I32" and deviation == 0:
        return np.full(_TABLE, _ZERO_POINT * 0x11, np.uint8)
    if dtype in {"I32", "U8"}:
        return np.random.default_rng(0).integers(0, 256, _TABLE, np.uint8)
    if dtype == "F8_E4M3" and deviation == 0:
        return np.full(_TABLE, _E2M1_SCALE, np.uint8)
    if deviation == 0:
        return torch.ones(_TABLE, dtype=torch.bfloat16).view(torch.uint8).numpy()
    if dtype == "F32":  # scales, which give e4m3 values the size of weights
        return np.full(_TABLE, deviation / _E4M3_SIZE, np.float32).view(np.uint8)
    if dtype == "F16":  # likewise integers
        return np.full(_TABLE, deviation / _U4_DEVIATION, np.float16).view(np.uint8)
    values = torch.randn(_TABLE, generator=torch.Generator().manual_seed(0))
    if dtype == "F8_E4M3":
        return (values * _E4M3_SIZE).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return (values * deviation).to(torch.bfloat16).view(torch.uint8).numpy()


def _fill(data: Bytes, table: Bytes, index: int) -> None:
    """Repeats `table` from a place that depends on `index`, a multiple of 64 bytes."""
    start = index * 104729 * 64 % (len(table) // 64 * 64)
    done = 0
    while done < len(data):
        part = table[start : start + len(data) - done]
        data[done : done + len(part)] = part
        done += len(part)
        start = 0


def main(arguments: list[str]) -> int:
    """Write a checkpoint; says its size."""
    model, weights, folder = arguments
    say(what="checkpoint", bytes=write(model, weights, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
