"""PLaMo 2 as a plain model, which `transformers` does not have.

Source of its formulas: PLaMo 2 Technical Report (arXiv 2509.04897), and the published port by its
authors (`plamo2.py` of mlx-examples).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig

from tests.families.reference_parts import ReferenceModel, rotated


class Plamo2Config(PretrainedConfig):
    """PLaMo 2's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "plamo2"

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 13312,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "hidden_size_per_head": 128,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "attention_window_size": 2048,
            "full_attention_idx": [],
            "mamba_d_state": 64,
            "mamba_d_conv": 4,
            "mamba_num_heads": 64,
            "mamba_step": 2,
            "mamba_enabled": True,
        }
        super().__init__(**{**sizes, "tie_word_embeddings": True, **fields})


def _unit(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()


class _Norm(nn.Module):
    def __init__(self, config: Any, offset: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(config.hidden_size))
        self.eps, self.offset = config.rms_norm_eps, offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _unit(x, self.eps) * (self.weight + self.offset)


class _Attention(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.config = config
        self.window = None if layer in config.full_attention_idx else config.attention_window_size
        heads, kv, dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.hidden_size_per_head,
        )
        self.qkv_proj = nn.Linear(config.hidden_size, (heads + 2 * kv) * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, config.hidden_size, bias=False)
        self.q_weight = nn.Parameter(torch.ones(heads, dim))
        self.k_weight = nn.Parameter(torch.ones(kv, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, (batch, tokens, _) = self.config, x.shape
        heads, kv = config.num_attention_heads, config.num_key_value_heads
        qkv = self.qkv_proj(x).view(batch, tokens, heads + 2 * kv, -1).transpose(1, 2)
        q, k, v = qkv.split([heads, kv, kv], 1)
        q = rotated(_unit(q, 1e-6) * self.q_weight[:, None], config.rope_theta)
        k = rotated(_unit(k, 1e-6) * self.k_weight[:, None], config.rope_theta)
        k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
        seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        if self.window is not None:
            seen = seen.triu(-self.window)
        y = functional.scaled_dot_product_attention(q, k, v, seen)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))


class _Mamba(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        heads, states = config.mamba_num_heads, config.mamba_d_state
        inner, rank = heads * config.hidden_size_per_head, max(64, config.hidden_size // 16)
        self.sizes = [states, states, rank]
        self.in_proj = nn.Linear(config.hidden_size, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, config.mamba_d_conv, groups=inner, bias=False)
        self.bcdt_proj = nn.Linear(inner, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, heads, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        self.A_log = nn.Parameter(torch.arange(1.0, heads + 1).log())
        self.D = nn.Parameter(torch.ones(heads))
        self.dt_norm_weight = nn.Parameter(torch.ones(rank))
        self.B_norm_weight = nn.Parameter(torch.ones(states))
        self.C_norm_weight = nn.Parameter(torch.ones(states))
        self.out_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, (batch, tokens, _) = self.config, x.shape
        heads, eps = config.mamba_num_heads, config.rms_norm_eps
        gate, x = self.in_proj(x).view(batch, tokens, heads, -1).chunk(2, -1)
        padded = functional.pad(x.flatten(2).mT, (config.mamba_d_conv - 1, 0))
        x = functional.silu(self.conv1d(padded)).mT
        b, c, dt = self.bcdt_proj(x).split(self.sizes, -1)
        b, c = _unit(b, eps) * self.B_norm_weight, _unit(c, eps) * self.C_norm_weight
        dt = self.dt_proj(_unit(dt, eps) * self.dt_norm_weight)
        dt = functional.softplus(dt + self.dt_bias)
        x, decay = x.view(batch, tokens, heads, -1), (-dt * self.A_log.exp()).exp()
        state = torch.zeros(batch, heads, x.shape[-1], b.shape[-1])
        results: list[torch.Tensor] = []
        for t in range(tokens):
            new = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, None, None]
            state = decay[:, t, :, None, None] * state + new
            results.append((state * c[:, t, None, None]).sum(-1))
        y = torch.stack(results, 1) + self.D[:, None] * x
        return self.out_proj((y * functional.silu(gate)).flatten(2))


class _Mlp(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_up_proj = nn.Linear(hidden, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(functional.silu(gate) * up)


class _Layer(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        attends = layer % config.mamba_step == config.mamba_step // 2 or not config.mamba_enabled
        self.mixer = _Attention(config, layer) if attends else _Mamba(config)
        self.mlp = _Mlp(config)
        self.pre_mixer_norm, self.post_mixer_norm = _Norm(config), _Norm(config, 1 / 5)
        self.pre_mlp_norm, self.post_mlp_norm = _Norm(config), _Norm(config, 5**-1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.post_mixer_norm(self.mixer(self.pre_mixer_norm(x)))
        return x + self.post_mlp_norm(self.mlp(self.pre_mlp_norm(x)))


class _Layers(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(config, i) for i in range(config.num_hidden_layers))


class _Plamo2(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = _Layers(config)
        self.norm = _Norm(config)


class Plamo2ForCausalLM(ReferenceModel):
    """The model with the names of its checkpoints."""

    config_class = Plamo2Config
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config, _Plamo2(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model.embed_tokens(input_ids)
        for layer in self.model.layers.layers:
            x = layer(x)
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x[:, -logits_to_keep:])))
