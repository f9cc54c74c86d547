"""Qwen2 and Qwen2.5: Llama with biases on q, k and v, and sliding windows on some layers.

Weights as Llama's, plus `self_attn.{q,k,v}_proj.bias`.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import Config
from pagemill.models.config_keys import attends_both_ways, sliding_windows
from pagemill.models.decoder import Decoder


class Qwen2Model(Decoder):
    """One Qwen2 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = AttentionParts(bias=True)
        self.windows = sliding_windows(config, self.sizes.layers)
        self.both_ways = attends_both_ways(config, self.windows)
