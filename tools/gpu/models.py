"""Random-weight checkpoints with the shapes of real models: nothing has to be downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Config = Mapping[str, Any]

_ROPE = {"rope_type": "default", "rope_theta": 500000.0}
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "rope_parameters": _ROPE,
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _sizes(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocab: int) -> Config:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "vocab_size": vocab,
        "tie_word_embeddings": True,
    }


SHAPES: dict[str, Config] = {
    "gemma3-270m": _LLAMA
    | _sizes(640, 2048, 18, 4, 1, 262144)
    | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 512,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "llama-1b": _LLAMA | _sizes(2048, 8192, 16, 32, 8, 128256),
    "llama-8b": _LLAMA | _sizes(4096, 14336, 32, 32, 8, 128256) | {"tie_word_embeddings": False},
    "qwen2-0.5b": _LLAMA
    | _sizes(896, 4864, 24, 14, 2, 151936)
    | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "smollm2-135m": _LLAMA | _sizes(576, 1536, 30, 9, 3, 49152),
    "tiny": _LLAMA | _sizes(64, 96, 2, 4, 2, 300),
}
# Gemma's layers are named one by one: five sliding, one full.
SHAPES["gemma3-270m"] = SHAPES["gemma3-270m"] | {
    "layer_types": list(SHAPES["gemma3-270m"]["layer_types"]) * 3
}


def tensor_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint of `config`, by their names."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q_size = config["num_attention_heads"] * config["head_dim"]
    kv_size = config["num_key_value_heads"] * config["head_dim"]
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q_size, hidden),
        "self_attn.k_proj.weight": (kv_size, hidden),
        "self_attn.v_proj.weight": (kv_size, hidden),
        "self_attn.o_proj.weight": (hidden, q_size),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (kv_size,) for name in "kv"}
        layer["self_attn.q_proj.bias"] = (q_size,)
    if config["model_type"] == "gemma3_text":
        layer |= {f"self_attn.{name}_norm.weight": (config["head_dim"],) for name in "qk"}
        layer |= {f"{name}_feedforward_layernorm.weight": (hidden,) for name in ("pre", "post")}
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{index}.{name}": shape
        for index in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    shapes["model.embed_tokens.weight"] = (config["vocab_size"], hidden)
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def write_checkpoint(config: Config, directory: Path, device: str) -> None:
    """Save bf16 weights that keep the size of activations; `device` draws them."""
    generator = torch.Generator(device).manual_seed(0)
    # Gemma's norms are stored minus 1.
    centre = 0.0 if config["model_type"] == "gemma3_text" else 1.0
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in tensor_shapes(config).items():
        values = torch.randn(shape, generator=generator, device=device)
        if name.endswith("norm.weight"):
            values = centre + 0.1 * values
        elif name.endswith("bias"):
            values = 0.3 * values
        else:
            values = values * shape[-1] ** -0.5
        tensors[name] = values.to(torch.bfloat16).cpu()
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config))
