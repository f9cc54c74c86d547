"""References of models whose layers run several times: Ouro's, with two more norms, and
Nanbeige's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel

from tests.families.reference_parts import ReferenceModel


class OuroConfig(LlamaConfig):
    """Llama's, and the number of times that the layers run."""

    model_type = "ouro"
    total_ut_steps: int = 4


class _Ouro(LlamaModel):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer in self.layers:
            for name in ("input_layernorm_2", "post_attention_layernorm_2"):
                layer.add_module(name, nn.RMSNorm(config.hidden_size, config.rms_norm_eps))
        self.early_exit_gate = nn.Linear(config.hidden_size, 1)


class OuroForCausalLM(ReferenceModel):
    """Source: the implementation of the published checkpoints (ByteDance/Ouro-1.4B)."""

    config_class = OuroConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config, _Ouro(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        model, tokens = self.model, input_ids.shape[1]
        x = model.embed_tokens(input_ids)
        angles = model.rotary_emb(x, torch.arange(tokens)[None])
        unseen = torch.full((1, 1, tokens, tokens), -torch.inf).triu(1)
        for _ in range(self.config.total_ut_steps):
            for layer in model.layers:
                x = _behind(layer, x, angles, unseen)
            x = model.norm(x)
        return SimpleNamespace(logits=self.lm_head(x[:, -logits_to_keep:]))


class NanbeigeConfig(LlamaConfig):
    """Llama's, and the number of times that the layers run."""

    model_type = "nanbeige"
    num_loops: int = 1
    skip_loop_final_norm: bool = False


class NanbeigeForCausalLM(ReferenceModel):
    """Source: the description of the published checkpoint (Nanbeige/Nanbeige4.2-3B)."""

    config_class = NanbeigeConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config, LlamaModel(config))

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int = 0) -> Any:
        model, tokens, loops = self.model, input_ids.shape[1], self.config.num_loops
        x = model.embed_tokens(input_ids)
        angles = model.rotary_emb(x, torch.arange(tokens)[None])
        unseen = torch.full((1, 1, tokens, tokens), -torch.inf).triu(1)
        for loop in range(loops):
            for layer in model.layers:
                x = layer(x, attention_mask=unseen, position_embeddings=angles)
            if loop == loops - 1 or not self.config.skip_loop_final_norm:
                x = model.norm(x)
        return SimpleNamespace(logits=self.lm_head(x[:, -logits_to_keep:]))


def _behind(layer: LlamaDecoderLayer, x: torch.Tensor, angles: Any, mask: Any) -> torch.Tensor:
    """x behind a layer."""
    parts: Any = layer
    y, _ = parts.self_attn(parts.input_layernorm(x), angles, attention_mask=mask)
    x = x + parts.input_layernorm_2(y)
    y = parts.mlp(parts.post_attention_layernorm(x))
    return x + parts.post_attention_layernorm_2(y)
