"""Qwen3: Llama with a norm on each head of q and k, and sliding windows on some layers.

Weights as Llama's, plus `self_attn.{q,k}_norm`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.models.base import Config
from pagemill.models.config_keys import attends_both_ways, sliding_windows
from pagemill.models.decoder import Decoder


class Qwen3Model(Decoder):
    """One dense Qwen3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = replace(self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps))
        self.windows = sliding_windows(config, self.sizes.layers)
        self.both_ways = attends_both_ways(config, self.windows)
