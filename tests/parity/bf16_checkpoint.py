"""Writes the Llama of a GGUF file as the bf16 safetensors checkpoint that it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from pagemill.weights.read import read_f32
from pagemill.weights.source import ModelSource
from safetensors.torch import save_file

_MODULES = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def _names(num_layers: int) -> list[str]:
    layers = [f"model.layers.{i}.{module}" for i in range(num_layers) for module in _MODULES]
    return [f"{module}.weight" for module in ("model.embed_tokens", *layers, "model.norm")]


def write_bf16(source: ModelSource, directory: Path) -> None:
    """Rounds every tensor of `source`, a Llama with tied embeddings, to bf16.

    GGUF stores the rows of a head's queries and keys in pairs that are rotated together; a
    checkpoint stores the first of all pairs, then the second.
    """
    config = dict(source.config)
    assert config.pop("rope_interleaved") and config["tie_word_embeddings"]
    tensors: dict[str, torch.Tensor] = {}
    for name in _names(config["num_hidden_layers"]):
        weight = torch.from_numpy(read_f32(source.tensor(name)).copy())
        if "q_proj" in name or "k_proj" in name:
            pairs = weight.view(-1, config["head_dim"] // 2, 2, weight.shape[1])
            weight = pairs.transpose(1, 2).reshape(weight.shape)
        tensors[name] = weight.bfloat16()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config), "utf-8")
