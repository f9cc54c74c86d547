"""Grok-2 as a plain model, which `transformers` does not have.

Source: the implementation that its model card names (`grok.py` of sglang).
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig

from tests.families.reference_parts import ReferenceModel, largest_shares, rotated


class Grok2Config(PretrainedConfig):
    """Grok-2's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "grok-2"

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 131072,
            "hidden_size": 8192,
            "intermediate_size": 32768,
            "moe_intermediate_size": 16384,
            "num_hidden_layers": 64,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 208533496.0,
            "attn_logit_softcapping": 30.0,
            "attn_temperature_len": 1024,
            "router_logit_softcapping": 30.0,
            "final_logit_softcapping": 50.0,
            "embedding_multiplier_scale": 8192**0.5,
            "output_multiplier_scale": 0.5,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "residual_moe": True,
        }
        super().__init__(**{**sizes, "tie_word_embeddings": False, **fields})


def _capped(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * (x / cap).tanh()


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        hidden, dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(hidden, config.num_attention_heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * dim, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, (batch, tokens, _) = self.config, x.shape
        projections = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (
            p(x).view(batch, tokens, -1, config.head_dim).transpose(1, 2) for p in projections
        )
        q, k = rotated(q, config.rope_theta), rotated(k, config.rope_theta)
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
        scores = _capped(q @ k.mT * config.head_dim**-0.5, config.attn_logit_softcapping)
        length = config.attn_temperature_len
        positions = torch.arange(tokens)[:, None].clamp(min=length)
        scores = scores * (positions.log() / math.log(length))
        unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


class _Mlp(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(_gelu(self.gate_proj(x)) * self.up_proj(x))


class _Expert(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.moe_intermediate_size
        self.w1 = nn.Linear(hidden, inner, bias=False)
        self.w3 = nn.Linear(hidden, inner, bias=False)
        self.w2 = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(_gelu(self.w1(x)) * self.w3(x))


class _Experts(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.choices, self.cap = config.num_experts_per_tok, config.router_logit_softcapping
        self.gate = nn.Linear(config.hidden_size, config.num_local_experts, bias=False)
        self.experts = nn.ModuleList(_Expert(config) for _ in range(config.num_local_experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = _capped(self.gate(x), self.cap).softmax(-1)
        shares = largest_shares(shares, self.choices)
        results = torch.stack([expert(x) for expert in self.experts], -1)
        return (results * shares[..., None, :]).sum(-1)


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        for name in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
            self.add_module(name, nn.RMSNorm(config.hidden_size, config.rms_norm_eps))
        self.self_attn = _Attention(config)
        self.block_sparse_moe = _Experts(config)
        if config.residual_moe:
            self.mlp = _Mlp(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.post_attn_norm(self.self_attn(self.pre_attn_norm(x)))
        y = self.pre_moe_norm(x)
        z = self.block_sparse_moe(y)
        if hasattr(self, "mlp"):
            z = (self.mlp(y) + z) / math.sqrt(2)
        return x + self.post_moe_norm(z)


class _Grok2(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class Grok1ForCausalLM(ReferenceModel):
    """The model with the names of its checkpoints, this one included."""

    config_class = Grok2Config

    def __init__(self, config: Any) -> None:
        super().__init__(config, _Grok2(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        config = self.config
        x = self.model.embed_tokens(input_ids) * config.embedding_multiplier_scale
        for layer in self.model.layers:
            x = layer(x)
        logits = self.lm_head(self.model.norm(x[:, -logits_to_keep:]))
        logits = logits * config.output_multiplier_scale
        return SimpleNamespace(logits=_capped(logits, config.final_logit_softcapping))
