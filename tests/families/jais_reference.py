"""A plain model of Jais."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D


class JaisConfig(PretrainedConfig):
    """Jais's, which are those of GPT-2 and its scales."""

    model_type = "jais"
    attribute_map = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 257,
            "n_embd": 96,
            "n_layer": 4,
            "n_head": 6,
            "n_positions": 4096,
            "n_inner": 136,
            "layer_norm_epsilon": 0.03,
            "activation_function": "swiglu",
            "position_embedding_type": "alibi",
            "mup_scale_qk_dot_by_d": True,
            "mup_embeddings_scale": 1.7,
            "mup_output_alpha": 2.2,
            "mup_width_scale": 0.4,
        }
        super().__init__(**{**sizes, "tie_word_embeddings": True, **fields})


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads = config.n_head
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1)
        )
        places = torch.arange(x.shape[1])
        # Of 6 heads: the slopes of 4, and the first and third of 8.
        slopes = torch.tensor([2.0**-e for e in (2, 4, 6, 8, 1, 3)])
        scores = q @ k.mT / q.shape[-1] + slopes[:, None, None] * (places - places[:, None])
        scores = scores.masked_fill(places > places[:, None], -torch.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class _Mlp(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.c_fc = Conv1D(config.n_inner, config.n_embd)
        self.c_fc2 = Conv1D(config.n_inner, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(self.c_fc(x) * functional.silu(self.c_fc2(x)))


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.attn = _Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.mlp = _Mlp(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class _Jais(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.h = nn.ModuleList(_Layer(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)


class JAISLMHeadModel(PreTrainedModel):
    """Source: the published implementation (hf.co/inceptionai/jais-13b)."""

    config_class = JaisConfig
    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.transformer = _Jais(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.transformer.wte

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        config, model = self.config, self.transformer
        x = model.wte(input_ids) * config.mup_embeddings_scale
        for layer in model.h:
            x = layer(x)
        logits = self.lm_head(model.ln_f(x[:, -logits_to_keep:]))
        return SimpleNamespace(logits=logits * (config.mup_output_alpha * config.mup_width_scale))
