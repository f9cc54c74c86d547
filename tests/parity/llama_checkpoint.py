"""A tiny Llama of random weights, for tests that need a checkpoint and no reference of it: unlike
`tiny_models` it imports neither torch nor `transformers`, which takes seconds of each process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pagemill.weights.new_file import new_file, safetensors_header

_VOCABULARY, _HIDDEN, _INTERMEDIATE, _LAYERS = 257, 96, 136, 3
_HEADS, _KV_HEADS, _HEAD_DIM = 6, 2, 16

_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": _VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": _INTERMEDIATE,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _KV_HEADS,
    "head_dim": _HEAD_DIM,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_llama(directory: Path, dtype: str = "f32", seed: int = 0) -> None:
    """Write config.json and model.safetensors of the sizes of `tiny_models.llama`, with weights of
    `dtype`, "f32" or "bf16"."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    entries: dict[str, Any] = {}
    stored: list[bytes] = []
    begin = 0
    for name, shape in _shapes().items():
        noise = random.standard_normal(shape, np.float32)
        # Matrices keep the size of activations; norms are not neutral.
        values = noise / np.float32(shape[-1] ** 0.5) if len(shape) == 2 else 1 + 0.3 * noise
        stored.append(_bytes(values.astype(np.float32), dtype))
        end = begin + len(stored[-1])
        entries[name] = {
            "dtype": {"f32": "F32", "bf16": "BF16"}[dtype],
            "shape": shape,
            "data_offsets": [begin, end],
        }
        begin = end
    with new_file(directory / "model.safetensors", safetensors_header(entries), begin) as file:
        file.writelines(stored)
    name = {"f32": "float32", "bf16": "bfloat16"}[dtype]
    (directory / "config.json").write_text(json.dumps({**_CONFIG, "dtype": name}))


def _bytes(values: np.ndarray, dtype: str) -> bytes:
    """Little-endian elements; those of bf16 are the upper halves of f32."""
    bits = values.astype("<f4").view("<u4")
    return (bits >> 16).astype("<u2").tobytes() if dtype == "bf16" else bits.tobytes()


def _shapes() -> dict[str, tuple[int, ...]]:
    """[out, in] of matrices, [features] of norms."""
    queries, keys = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (_HIDDEN,),
        "self_attn.q_proj": (queries, _HIDDEN),
        "self_attn.k_proj": (keys, _HIDDEN),
        "self_attn.v_proj": (keys, _HIDDEN),
        "self_attn.o_proj": (_HIDDEN, queries),
        "post_attention_layernorm": (_HIDDEN,),
        "mlp.gate_proj": (_INTERMEDIATE, _HIDDEN),
        "mlp.up_proj": (_INTERMEDIATE, _HIDDEN),
        "mlp.down_proj": (_HIDDEN, _INTERMEDIATE),
    }
    layers = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(_LAYERS)
        for name, shape in layer.items()
    }
    return {
        "model.embed_tokens.weight": (_VOCABULARY, _HIDDEN),
        **layers,
        "model.norm.weight": (_HIDDEN,),
    }
