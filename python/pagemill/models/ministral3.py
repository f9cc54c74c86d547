"""Ministral 3: Mistral with queries that are scaled by their position.

Weights as Llama's. Queries are multiplied by 1 + beta ln(1 + floor(position / original context)),
which is 1 in the original context: that is the longest that this family has.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.models.base import Config
from pagemill.models.config_keys import number, positive_int, rope_parameters, window_or_full
from pagemill.models.decoder import Decoder


class Ministral3Model(Decoder):
    """One Ministral 3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.windows = (window_or_full(config),) * self.sizes.layers
        rope = rope_parameters(config)
        if number(rope, "llama_4_scaling_beta", 0.0):
            original = positive_int(rope, "original_max_position_embeddings")
            longest = min(self.sizes.max_positions, original)
            self.sizes = replace(self.sizes, max_positions=longest)
