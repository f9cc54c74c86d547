"""Command R (`CohereForCausalLM`): both branches read one layer norm without bias; interleaved
rotary pairs, scaled logits. Command R+ has layer norms of each head of q and k.

Weights as Llama's, without `post_attention_layernorm`; `self_attn.{q,k}_norm` [heads, head_dim] if
there are such; the head is tied.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder


class CohereModel(Decoder):
    """One Command R model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self.norm_bias = False
        if flag(config, "use_qk_norm", False):
            qk_norm = QkNorm(self.sizes.norm_eps, mean=True, each=True)
            self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self.parallel = True
        self.interleaved = True
        self.logits_scale = number(config, "logit_scale", 0.0625)
