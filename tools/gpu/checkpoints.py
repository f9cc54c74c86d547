"""Checkpoints of random weights with the shapes of real models, written in seconds.

    python -m tools.gpu.checkpoints llama-8b bf16 FOLDER

Numbers are drawn once and repeated, from another place for each tensor, so that activations keep
their size. A layer in fp8 has e4m3 values and a scale for each block of 128 x 128.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
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
_THREADS = 8
Bytes = npt.NDArray[np.uint8]


def _llama(hidden: int, inner: int, layers: int, heads: int, kv: int, vocab: int) -> dict[str, Any]:
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
        "head_dim": hidden // heads,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    }


MODELS: Mapping[str, dict[str, Any]] = {
    "llama-1b": _llama(2048, 8192, 16, 32, 8, 128256),
    "llama-8b": _llama(4096, 14336, 32, 32, 8, 128256),
    # Its step takes the device so little that the host's work decides.
    "one-layer": _llama(256, 256, 1, 4, 2, 512),
    "tiny": _llama(64, 160, 1, 2, 1, 300),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`dtype` as safetensors names it; `deviation` of its numbers, 0: all are 1."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    deviation: float

    @property
    def bytes(self) -> int:
        """Of its data."""
        return int(np.prod(self.shape)) * {"BF16": 2, "F32": 4, "F8_E4M3": 1}[self.dtype]


def tensors(config: Mapping[str, Any], weights: str) -> list[StoredTensor]:
    """What a checkpoint of a Llama of `config` stores, with layers in `weights`: bf16 or fp8."""
    hidden, inner, vocab = (
        config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    q, kv = (
        config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads")
    )
    layer = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    found = [
        StoredTensor("model.embed_tokens.weight", "BF16", (vocab, hidden), 1.0),
        StoredTensor("model.norm.weight", "BF16", (hidden,), 0),
        StoredTensor("lm_head.weight", "BF16", (vocab, hidden), hidden**-0.5),
    ]
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}."
        for norm in ("input", "post_attention"):
            found.append(StoredTensor(f"{prefix}{norm}_layernorm.weight", "BF16", (hidden,), 0))
        for name, (rows, columns) in layer.items():
            deviation = columns**-0.5
            if weights == "bf16":
                weight = StoredTensor(f"{prefix}{name}.weight", "BF16", (rows, columns), deviation)
                found.append(weight)
                continue
            blocks = (-(-rows // _BLOCK), -(-columns // _BLOCK))
            found.append(
                StoredTensor(f"{prefix}{name}.weight", "F8_E4M3", (rows, columns), deviation)
            )
            found.append(StoredTensor(f"{prefix}{name}.weight_scale_inv", "F32", blocks, deviation))
    return found


def write(model: str, weights: str, folder: Path) -> int:
    """Write the checkpoint; returns the bytes of its tensors."""
    config = dict(MODELS[model])
    if weights == "fp8":
        config["quantization_config"] = {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [_BLOCK, _BLOCK],
        }
    stored = tensors(config, weights)
    ends = list(itertools.accumulate(tensor.bytes for tensor in stored))
    header = _header(stored, ends)
    folder.mkdir(parents=True, exist_ok=True)
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
    if deviation == 0:
        return torch.ones(_TABLE, dtype=torch.bfloat16).view(torch.uint8).numpy()
    if dtype == "F32":  # scales, which give e4m3 values the size of weights
        return np.full(_TABLE, deviation / _E4M3_SIZE, np.float32).view(np.uint8)
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
