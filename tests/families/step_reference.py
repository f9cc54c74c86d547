"""Step 3 as a plain model; Step 3.5, which is a part of the Step 3.7 of `transformers`.

Source of Step 3's formulas: Step-3 is Large yet Affordable (arXiv 2507.19427), and the names of its
published checkpoints.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

from tests.families.reference_parts import ReferenceModel, largest_shares, rotated


class Step3p5ForCausalLM(ReferenceModel):
    """The language model of Step 3.7 alone."""

    config_class = Step3p7TextConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config, Step3p7TextModel(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model(input_ids, use_cache=False).last_hidden_state
        return SimpleNamespace(logits=self.lm_head(x[:, -logits_to_keep:]))


class Step3Config(PretrainedConfig):
    """Step 3's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "step3_text"

    def __init__(self, **fields: Any) -> None:
        sizes: dict[str, Any] = {
            "vocab_size": 128815,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_attention_groups": 1,
            "head_dim": 256,
            "share_q_dim": 2048,
            "max_position_embedding": 65536,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "moe_num_experts": 48,
            "moe_top_k": 3,
            "moe_intermediate_size": 5120,
            "share_expert_dim": 5120,
            "norm_expert_weight": False,
            "moe_layers_enum": ",".join(map(str, range(4, 60))),
        }
        merged: dict[str, Any] = {**sizes, "tie_word_embeddings": False, **fields}
        super().__init__(**merged)


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        hidden, dim, narrow = config.hidden_size, config.head_dim, config.share_q_dim
        keys, all_heads = config.num_attention_groups * dim, config.num_attention_heads * dim
        self.q_proj = nn.Linear(hidden, narrow, bias=False)
        self.inter_norm = nn.RMSNorm(narrow, config.rms_norm_eps)
        self.wq = nn.Linear(narrow, all_heads, bias=False)
        self.k_proj = nn.Linear(hidden, keys, bias=False)
        self.v_proj = nn.Linear(hidden, keys, bias=False)
        self.o_proj = nn.Linear(all_heads, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, (batch, tokens, _) = self.config, x.shape
        queries = self.wq(self.inter_norm(self.q_proj(x)))
        of_all = (queries, self.k_proj(x), self.v_proj(x))
        q, k, v = (y.view(batch, tokens, -1, config.head_dim).transpose(1, 2) for y in of_all)
        q, k = rotated(q, config.rope_theta), rotated(k, config.rope_theta)
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))


class _Mlp(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _Stack(nn.Module):
    """One linear layer of each expert."""

    def __init__(self, count: int, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, rows, columns))


class _Experts(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        count, hidden = config.moe_num_experts, config.hidden_size
        width = config.moe_intermediate_size
        self.gate = nn.Linear(hidden, count, bias=False)
        self.gate_proj = _Stack(count, width, hidden)
        self.up_proj = _Stack(count, width, hidden)
        self.down_proj = _Stack(count, hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = largest_shares(self.gate(x).softmax(-1), self.config.moe_top_k)
        if self.config.norm_expert_weight:
            shares = shares / shares.sum(-1, keepdim=True)
        gate, up = (
            torch.einsum("bth,eih->btei", x, stack.weight)
            for stack in (self.gate_proj, self.up_proj)
        )
        y = functional.silu(gate) * up * shares[..., None]
        return torch.einsum("btei,ehi->bth", y, self.down_proj.weight)


class _Layer(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.self_attn = _Attention(config)
        self.sparse = layer in map(int, config.moe_layers_enum.split(","))
        if self.sparse:
            self.moe = _Experts(config)
            self.share_expert = _Mlp(hidden, config.share_expert_dim)
        else:
            self.mlp = _Mlp(hidden, config.intermediate_size)
        self.input_layernorm = nn.RMSNorm(hidden, config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(hidden, config.rms_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + (self.moe(y) + self.share_expert(y) if self.sparse else self.mlp(y))


class _Step3(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class Step3TextForCausalLM(ReferenceModel):
    """The model with the names of its checkpoints."""

    config_class = Step3Config
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config, _Step3(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            x = layer(x)
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x[:, -logits_to_keep:])))
