"""References of families that `transformers` does not have and that are not one of its families
under other names: plain models, made known to it.

A reference computes whole sequences without a cache.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Mistral4Config,
    Mistral4ForCausalLM,
    PretrainedConfig,
)
from transformers.models.mistral_large4.modeling_mistral_large4 import (
    MistralLarge4TextConfig,
    MistralLarge4TextModel,
)
from transformers.models.muse_glimmer.modeling_muse_glimmer import (
    MuseGlimmerTextConfig,
    MuseGlimmerTextModel,
)

from tests.families.grok2_reference import Grok1ForCausalLM, Grok2Config
from tests.families.jais_reference import JaisConfig, JAISLMHeadModel
from tests.families.looped_references import (
    NanbeigeConfig,
    NanbeigeForCausalLM,
    OuroConfig,
    OuroForCausalLM,
)
from tests.families.nemotron_nas_reference import DeciLMForCausalLM, NemotronNasConfig
from tests.families.plamo2_reference import Plamo2Config, Plamo2ForCausalLM
from tests.families.reference_parts import ReferenceModel, largest_shares, rotated
from tests.families.rwkv_references import (
    Rwkv5Config,
    Rwkv5ForCausalLM,
    Rwkv6Config,
    Rwkv6ForCausalLM,
    Rwkv7Config,
    RWKV7ForCausalLM,
)
from tests.families.step_reference import (
    Step3Config,
    Step3p5ForCausalLM,
    Step3p7TextConfig,
    Step3TextForCausalLM,
)


class Grok1Config(PretrainedConfig):
    """Grok-1's, of the sizes that differ by default; the others are those of the suite."""

    model_type = "grok-1"

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 131072,
            "hidden_size": 6144,
            "intermediate_size": 32768,
            "num_hidden_layers": 64,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "attn_output_multiplier": 128**-0.5,
            "max_attn_value": 30.0,
            "embedding_multiplier_scale": 6144**0.5,
            "output_multiplier_scale": 3**-0.5,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        }
        super().__init__(**{**sizes, "tie_word_embeddings": True, **fields})


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        hidden, dim = config.hidden_size, config.hidden_size // config.num_attention_heads
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, (batch, tokens, hidden) = self.config, x.shape
        dim = hidden // config.num_attention_heads
        projections = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (p(x).view(batch, tokens, -1, dim).transpose(1, 2) for p in projections)
        q, k = rotated(q, config.rope_theta), rotated(k, config.rope_theta)
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
        scores = q @ k.mT * config.attn_output_multiplier
        scores = config.max_attn_value * (scores / config.max_attn_value).tanh()
        unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(x.shape))


class _Expert(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.linear_v = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.linear_1 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = functional.gelu(self.linear(x), approximate="tanh")
        return self.linear_1(gate * self.linear_v(x))


class _Experts(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.choices = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(_Expert(config) for _ in range(config.num_experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.gate(x).softmax(-1)
        shares = largest_shares(shares, self.choices)
        results = torch.stack([expert(x) for expert in self.experts], -1)
        return (results * shares[..., None, :]).sum(-1)


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        for name in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
            self.add_module(name, nn.RMSNorm(config.hidden_size, config.rms_norm_eps))
        self.attn = _Attention(config)
        self.moe_block = _Experts(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.post_attn_norm(self.attn(self.pre_attn_norm(x)))
        return x + self.post_moe_norm(self.moe_block(self.pre_moe_norm(x)))


class _Grok1(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class Grok1ModelForCausalLM(ReferenceModel):
    """Source: the published implementation in JAX (github.com/xai-org/grok-1), with the names of
    the checkpoint for PyTorch."""

    config_class = Grok1Config
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config, _Grok1(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model.embed_tokens(input_ids) * self.config.embedding_multiplier_scale
        for layer in self.model.layers:
            x = layer(x)
        x = (
            self.lm_head(self.model.norm(x[:, -logits_to_keep:]))
            * self.config.output_multiplier_scale
        )
        return SimpleNamespace(logits=x)


class MuseGlimmerForCausalLM(ReferenceModel):
    """The text model of `transformers`, with the head that the whole model has."""

    config_class = MuseGlimmerTextConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config, MuseGlimmerTextModel(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model(input_ids, use_cache=False).last_hidden_state[:, -logits_to_keep:]
        cap = self.config.final_logit_softcapping
        logits = self.lm_head(x) * (self.config.output_multiplier / cap)
        return SimpleNamespace(logits=cap * logits.tanh())


class MistralLarge4ForCausalLM(ReferenceModel):
    """The text model of `transformers`, with the head that the whole model has."""

    config_class = MistralLarge4TextConfig
    _can_set_experts_implementation_cached_value = True  # as the text model's

    def __init__(self, config: Any) -> None:
        super().__init__(config, MistralLarge4TextModel(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        x = self.model(input_ids, use_cache=False).last_hidden_state[:, -logits_to_keep:]
        cap = self.config.final_logit_softcapping
        return SimpleNamespace(logits=cap * (self.lm_head(x) / cap).tanh())


def register() -> None:
    """Makes the references known to `transformers`, and models of its own that its table of causal
    models lacks."""
    AutoModelForCausalLM.register(Mistral4Config, Mistral4ForCausalLM, exist_ok=True)
    AutoConfig.register("grok-1", Grok1Config, exist_ok=True)
    AutoModelForCausalLM.register(Grok1Config, Grok1ModelForCausalLM, exist_ok=True)
    AutoConfig.register("grok-2", Grok2Config, exist_ok=True)
    AutoModelForCausalLM.register(Grok2Config, Grok1ForCausalLM, exist_ok=True)
    AutoConfig.register("jais", JaisConfig, exist_ok=True)
    AutoModelForCausalLM.register(JaisConfig, JAISLMHeadModel, exist_ok=True)
    AutoModelForCausalLM.register(MistralLarge4TextConfig, MistralLarge4ForCausalLM, exist_ok=True)
    AutoModelForCausalLM.register(MuseGlimmerTextConfig, MuseGlimmerForCausalLM, exist_ok=True)
    AutoConfig.register("nemotron-nas", NemotronNasConfig, exist_ok=True)
    AutoModelForCausalLM.register(NemotronNasConfig, DeciLMForCausalLM, exist_ok=True)
    AutoConfig.register("nanbeige", NanbeigeConfig, exist_ok=True)
    AutoModelForCausalLM.register(NanbeigeConfig, NanbeigeForCausalLM, exist_ok=True)
    AutoConfig.register("ouro", OuroConfig, exist_ok=True)
    AutoModelForCausalLM.register(OuroConfig, OuroForCausalLM, exist_ok=True)
    AutoConfig.register("plamo2", Plamo2Config, exist_ok=True)
    AutoModelForCausalLM.register(Plamo2Config, Plamo2ForCausalLM, exist_ok=True)
    AutoConfig.register("rwkv5", Rwkv5Config, exist_ok=True)
    AutoModelForCausalLM.register(Rwkv5Config, Rwkv5ForCausalLM, exist_ok=True)
    AutoConfig.register("rwkv6", Rwkv6Config, exist_ok=True)
    AutoModelForCausalLM.register(Rwkv6Config, Rwkv6ForCausalLM, exist_ok=True)
    AutoConfig.register("rwkv7", Rwkv7Config, exist_ok=True)
    AutoModelForCausalLM.register(Rwkv7Config, RWKV7ForCausalLM, exist_ok=True)
    AutoConfig.register("step3_text", Step3Config, exist_ok=True)
    AutoModelForCausalLM.register(Step3Config, Step3TextForCausalLM, exist_ok=True)
    AutoModelForCausalLM.register(Step3p7TextConfig, Step3p5ForCausalLM, exist_ok=True)
