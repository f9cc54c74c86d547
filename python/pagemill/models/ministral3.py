"""Ministral 3: Mistral with queries that are scaled by their position.

Weights as Llama's.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.rotary import QueryGrowth
from pagemill.models.base import Config
from pagemill.models.config_keys import number, positive_int, rope_parameters, window_or_full
from pagemill.models.decoder import Decoder


class Ministral3Model(Decoder):
    """One Ministral 3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.windows = (window_or_full(config),) * self.sizes.layers
        rope = rope_parameters(config)
        beta = number(rope, "llama_4_scaling_beta", 0.0)
        if beta:
            growth = QueryGrowth(beta, positive_int(rope, "original_max_position_embeddings"))
            self.attention_parts = replace(self.attention_parts, growth=growth)
