"""Nemotron-NAS as a plain model, which `transformers` does not have.

Source of its formulas: Puzzle: Distillation-Based NAS for Inference-Optimized LLMs (arXiv
2411.19146), and the configurations of published checkpoints.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig

from tests.families.reference_parts import ReferenceModel, rotated


class NemotronNasConfig(PretrainedConfig):
    """Nemotron-NAS's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "nemotron-nas"

    def __init__(self, **fields: Any) -> None:
        sizes: dict[str, Any] = {
            "vocab_size": 128256,
            "hidden_size": 8192,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "attention_bias": False,
            "mlp_bias": False,
            "block_configs": [],
        }
        merged: dict[str, Any] = {**sizes, "tie_word_embeddings": False, **fields}
        super().__init__(**merged)


class _Attention(nn.Module):
    def __init__(self, config: Any, group: int) -> None:
        super().__init__()
        self.group, self.base = group, config.rope_theta
        hidden, bias = config.hidden_size, config.attention_bias
        self.dim = hidden // config.num_attention_heads
        self.q_proj = nn.Linear(hidden, hidden, bias=bias)
        self.k_proj = nn.Linear(hidden, hidden // group, bias=bias)
        self.v_proj = nn.Linear(hidden, hidden // group, bias=bias)
        self.o_proj = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projections = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (p(x).view(*x.shape[:2], -1, self.dim).transpose(1, 2) for p in projections)
        q, k = rotated(q, self.base), rotated(k, self.base)
        k, v = (y.repeat_interleave(self.group, 1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(x.shape))


class _Mlp(nn.Module):
    def __init__(self, config: Any, factor: float) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.mlp_bias
        width = -(-int(2 * factor * hidden / 3) // 256) * 256
        self.gate_proj = nn.Linear(hidden, width, bias=bias)
        self.up_proj = nn.Linear(hidden, width, bias=bias)
        self.down_proj = nn.Linear(width, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _Linear(nn.Module):
    def __init__(self, config: Any, name: str, *, bias: bool) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, nn.Linear(config.hidden_size, config.hidden_size, bias=bias))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.get_submodule(self.name)(x)


class _Layer(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        block = config.block_configs[layer]
        attention, ffn = block["attention"], block["ffn"]
        self.attends, self.feeds = not attention.get("no_op"), not ffn.get("no_op")
        if self.attends:
            self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.self_attn = (
                _Linear(config, "linear_attn", bias=config.attention_bias)
                if attention.get("replace_with_linear")
                else _Attention(config, attention["n_heads_in_group"])
            )
        if self.feeds:
            self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.mlp = (
                _Linear(config, "linear_mlp", bias=config.mlp_bias)
                if ffn.get("replace_with_linear")
                else _Mlp(config, ffn["ffn_mult"])
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.attends:
            x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x)) if self.feeds else x


class _NemotronNas(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class DeciLMForCausalLM(ReferenceModel):
    """The model with the names of its checkpoints."""

    config_class = NemotronNasConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config, _NemotronNas(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            x = layer(x)
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x[:, -logits_to_keep:])))
