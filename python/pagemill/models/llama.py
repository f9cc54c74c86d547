"""Llama, and the models that share its architecture (SmolLM2, ...).

Weights: `model.layers.<i>.{input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm,
mlp.{gate,up,down}_proj}`, `model.{embed_tokens,norm}`, `lm_head` unless tied. A GGUF file stores
the rows of q_proj and k_proj in the order of interleaved rotary pairs (`rope_interleaved`).
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import attends_both_ways
from pagemill.models.decoder import Decoder


class LlamaModel(Decoder):
    """One Llama model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.both_ways = attends_both_ways(config)
