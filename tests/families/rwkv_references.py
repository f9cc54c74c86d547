"""RWKV-5, RWKV-6 and RWKV-7 as plain models, which `transformers` does not have.

Source of their formulas: Eagle and Finch (arXiv 2404.05892) and RWKV-7 "Goose" (arXiv 2503.14456);
of the names of their tensors: the published checkpoints, those of RWKV-7 for
flash-linear-attention.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel

_SIZES = {
    "vocab_size": 65536,
    "hidden_size": 2048,
    "attention_hidden_size": None,
    "head_size": 64,
    "head_size_divisor": 8,
    "intermediate_size": None,
    "num_hidden_layers": 24,
    "layer_norm_epsilon": 1e-5,
    "rescale_every": 6,
    "tie_word_embeddings": False,
}


class Rwkv5Config(PretrainedConfig):
    """RWKV-5's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "rwkv5"

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**_SIZES, **fields})


class Rwkv6Config(PretrainedConfig):
    """RWKV-6's, likewise."""

    model_type = "rwkv6"

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**_SIZES, **fields})


class Rwkv7Config(PretrainedConfig):
    """RWKV-7's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "rwkv7"

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 65536,
            "hidden_size": 2048,
            "intermediate_size": None,
            "hidden_ratio": 4.0,
            "hidden_act": "sqrelu",
            "num_hidden_layers": 24,
            "head_dim": 64,
            "num_heads": None,
            "decay_low_rank_dim": 96,
            "a_low_rank_dim": 96,
            "v_low_rank_dim": 64,
            "gate_low_rank_dim": 256,
            "norm_first": True,
            "norm_bias": True,
            "norm_eps": 1e-5,
            "max_position_embeddings": 2048,
            "attn": None,
        }
        super().__init__(**{**sizes, "tie_word_embeddings": False, **fields})


def _previous(x: torch.Tensor) -> torch.Tensor:
    """The token before each of x [B, T, H], zeros before the first."""
    return functional.pad(x, (0, 0, 1, -1))


def _shares(size: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(1, 1, size))


def _by_head(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.unflatten(-1, (-1, size))


class _Attention5(nn.Module):
    """RWKV-5's; RWKV-6 changes what its projections and decays read."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.head_size
        width = config.attention_hidden_size or hidden
        self.size, self.eps = size, 1e-5 * config.head_size_divisor**2
        for name in ("receptance", "key", "value", "gate"):
            self.add_module(name, nn.Linear(hidden, width, bias=False))
        self.output = nn.Linear(width, hidden, bias=False)
        self.ln_x = nn.GroupNorm(width // size, width, self.eps)
        self.time_faaaa = nn.Parameter(torch.zeros(width // size, size))
        self.make_mixing(hidden, width)

    def make_mixing(self, hidden: int, width: int) -> None:
        self.time_decay = nn.Parameter(torch.zeros(width // self.size, self.size))
        for name in ("receptance", "key", "value", "gate"):
            self.register_parameter(f"time_mix_{name}", _shares(hidden))

    def mixed(self, x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """What receptance, key, value and gate read, and the decay exponents [B, T, heads, size]
        or of all tokens."""
        shares = [getattr(self, f"time_mix_{n}") for n in ("receptance", "key", "value", "gate")]
        return [x * share + _previous(x) * (1 - share) for share in shares], self.time_decay

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (of_r, of_k, of_v, of_g), w = self.mixed(x)
        r, k, v = (
            _by_head(project(of), self.size)
            for project, of in ((self.receptance, of_r), (self.key, of_k), (self.value, of_v))
        )
        decay = (-w.exp()).exp().expand(k.shape)
        state = torch.zeros(*k.shape[:1], *k.shape[2:], self.size)
        rows: list[torch.Tensor] = []
        for t in range(x.shape[1]):
            new = k[:, t, ..., None] * v[:, t, :, None]
            read = state + self.time_faaaa[..., None] * new
            rows.append((r[:, t, ..., None] * read).sum(-2))
            state = decay[:, t, ..., None] * state + new
        y = torch.stack(rows, 1).flatten(2)
        y = self.ln_x(y.flatten(0, 1)).view(y.shape)
        return self.output(y * functional.silu(self.gate(of_g)))


class _Attention6(_Attention5):
    def make_mixing(self, hidden: int, width: int) -> None:
        for name in "xrkvgw":
            self.register_parameter(f"time_maa_{name}", _shares(hidden))
        self.time_maa_w1 = nn.Parameter(torch.zeros(hidden, 5 * 32))
        self.time_maa_w2 = nn.Parameter(torch.zeros(5, 32, hidden))
        self.time_decay = _shares(width)
        self.time_decay_w1 = nn.Parameter(torch.zeros(hidden, 64))
        self.time_decay_w2 = nn.Parameter(torch.zeros(64, width))

    def mixed(self, x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        difference = _previous(x) - x
        low = (x + difference * self.time_maa_x) @ self.time_maa_w1
        low = low.tanh().unflatten(-1, (5, 32))
        learned = [low[..., i, :] @ self.time_maa_w2[i] for i in range(5)]
        w, k, v, r, g = (
            x + difference * (getattr(self, f"time_maa_{name}") + share)
            for name, share in zip("wkvrg", learned, strict=True)
        )
        decay = self.time_decay + (w @ self.time_decay_w1).tanh() @ self.time_decay_w2
        return [r, k, v, g], _by_head(decay, self.size)


class _FeedForward(nn.Module):
    def __init__(self, config: Any, size: int, version: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.key = nn.Linear(hidden, size, bias=False)
        self.receptance = nn.Linear(hidden, hidden, bias=False)
        self.value = nn.Linear(size, hidden, bias=False)
        self.names = {
            5: ("time_mix_key", "time_mix_receptance"),
            6: ("time_maa_k", "time_maa_r"),
        }[version]
        for name in self.names:
            self.register_parameter(name, _shares(hidden))
        self.version = version

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own, other = (x, _previous(x)) if self.version == 5 else (_previous(x), x)
        k, r = (own * share + other * (1 - share) for share in map(self.get_parameter, self.names))
        return self.receptance(r).sigmoid() * self.value(self.key(k).relu().square())


class _Block(nn.Module):
    def __init__(self, config: Any, layer: int, version: int) -> None:
        super().__init__()
        norms = ("pre_ln", "ln1", "ln2") if layer == 0 else ("ln1", "ln2")
        for name in norms:
            self.add_module(name, nn.LayerNorm(config.hidden_size, config.layer_norm_epsilon))
        self.attention = (_Attention5 if version == 5 else _Attention6)(config)
        size = config.intermediate_size or int(config.hidden_size * 3.5) // 32 * 32
        self.feed_forward = _FeedForward(config, size, version)


class _Rwkv(nn.Module):
    def __init__(self, config: Any, version: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(
            _Block(config, i, version) for i in range(config.num_hidden_layers)
        )
        self.ln_out = nn.LayerNorm(config.hidden_size)


class Rwkv5ForCausalLM(PreTrainedModel):
    """RWKV-5. `rescale_every` halves the residual stream, and what is added to it."""

    config_class = Rwkv5Config
    version = 5
    _tied_weights_keys = {"head.weight": "rwkv.embeddings.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.rwkv = _Rwkv(config, self.version)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.rwkv.embeddings

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.rwkv.embeddings(input_ids)
        every = self.config.rescale_every
        for i, block in enumerate(self.rwkv.blocks):
            x = block.pre_ln(x) if i == 0 else x
            scale = 0.5 ** (i // every)
            x = x + scale * block.attention(block.ln1(x))
            x = x + scale * block.feed_forward(block.ln2(x))
            x = x / 2 if (i + 1) % every == 0 else x
        return SimpleNamespace(logits=self.head(self.rwkv.ln_out(x[:, -logits_to_keep:])))


class Rwkv6ForCausalLM(Rwkv5ForCausalLM):
    """RWKV-6."""

    config_class = Rwkv6Config
    version = 6


class _LowRank(nn.Module):
    def __init__(self, hidden: int, rank: int, between: nn.Module, bias: bool = True) -> None:
        super().__init__()
        down, up = nn.Linear(hidden, rank, bias=False), nn.Linear(rank, hidden, bias=bias)
        self.lora = nn.Sequential(down, between, up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lora(x)


class _Attention7(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        hidden, self.size = config.hidden_size, config.head_dim
        for name in "rkvo":
            self.add_module(f"{name}_proj", nn.Linear(hidden, hidden, bias=False))
        for name in "rwkvag":
            self.register_parameter(f"x_{name}", _shares(hidden))
        self.k_k, self.k_a = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        self.r_k = nn.Parameter(torch.zeros(hidden // self.size, self.size))
        self.w_lora = _LowRank(hidden, config.decay_low_rank_dim, nn.Tanh())
        self.a_lora = _LowRank(hidden, config.a_low_rank_dim, nn.Identity())
        self.g_lora = _LowRank(hidden, config.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        if layer > 0:
            self.v_lora = _LowRank(hidden, config.v_low_rank_dim, nn.Identity())
        eps = self.size * config.norm_eps
        self.g_norm = nn.GroupNorm(hidden // self.size, hidden, eps)

    def forward(
        self, x: torch.Tensor, first_value: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        r, w, k, v, a, g = (
            x + (_previous(x) - x) * self.get_parameter(f"x_{name}") for name in "rwkvag"
        )
        of_value = v
        r, k, v = self.r_proj(r), self.k_proj(k), self.v_proj(v)
        if first_value is not None:
            v = torch.lerp(v, first_value, self.v_lora(of_value).sigmoid())
        decay = (-math.exp(-0.5) * self.w_lora(w).sigmoid()).exp()
        a = self.a_lora(a).sigmoid()
        removed = functional.normalize(_by_head(k * self.k_k, self.size), dim=-1)
        k = k * (1 + (a - 1) * self.k_a)
        r, decay, k, a, values = (_by_head(y, self.size) for y in (r, decay, k, a, v))
        state = torch.zeros(*k.shape[:1], *k.shape[2:], self.size)  # a row for each value
        rows: list[torch.Tensor] = []
        for t in range(x.shape[1]):
            kept = torch.diag_embed(decay[:, t]) - (
                removed[:, t, ..., None] * (removed * a)[:, t, :, None]
            )
            state = state @ kept + values[:, t, ..., None] * k[:, t, :, None]
            rows.append((state @ r[:, t, ..., None])[..., 0])
        y = torch.stack(rows, 1).flatten(2)
        y = self.g_norm(y.flatten(0, 1)).view(y.shape)
        own = (r * k * self.r_k).sum(-1, keepdim=True) * values
        return self.o_proj((y + own.flatten(2)) * self.g_lora(g)), v


class _FeedForward7(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden = config.hidden_size
        size = config.intermediate_size or -(-int(hidden * config.hidden_ratio) // 32) * 32
        self.key = nn.Linear(hidden, size, bias=False)
        self.value = nn.Linear(size, hidden, bias=False)
        self.x_k = nn.Parameter(torch.full((hidden,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + (_previous(x) - x) * self.x_k
        return self.value(self.key(x).relu().square())


class _Block7(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        names = ["attn_norm", "ffn_norm"]
        if layer == 0 and config.norm_first:
            names.append("pre_norm")
        for name in names:
            self.add_module(name, _norm7(config))
        self.attn, self.ffn = _Attention7(config, layer), _FeedForward7(config)


def _norm7(config: Any) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, config.norm_eps, bias=config.norm_bias)


class _Rwkv7(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Block7(config, i) for i in range(config.num_hidden_layers))
        self.norm = _norm7(config)


class RWKV7ForCausalLM(PreTrainedModel):
    """RWKV-7."""

    config_class = Rwkv7Config
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = _Rwkv7(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embeddings

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model.embeddings(input_ids)
        x = self.model.layers[0].pre_norm(x) if self.config.norm_first else x
        first_value = None
        for layer in self.model.layers:
            y, value = layer.attn(layer.attn_norm(x), first_value)
            first_value = value if first_value is None else first_value
            x = x + y
            x = x + layer.ffn(layer.ffn_norm(x))
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x[:, -logits_to_keep:])))
