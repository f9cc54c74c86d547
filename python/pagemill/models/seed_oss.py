"""Seed-OSS: Llama with biases on q, k and v, and heads whose size is stated.

Weights as Llama's, plus `self_attn.{q,k,v}_proj.bias`.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder


class SeedOssModel(Decoder):
    """One Seed-OSS model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = AttentionParts(
            bias=flag(config, "attention_bias", True),
            output_bias=flag(config, "attention_out_bias", False),
        )
