"""InternLM3: Llama with biases of queries, keys and values if `qkv_bias`, and of all other linear
layers if `bias`.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder


class InternLm3Model(Decoder):
    """One InternLM3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        bias = flag(config, "bias", False)
        qkv_bias = flag(config, "qkv_bias", False)
        self.attention_parts = AttentionParts(bias=qkv_bias, output_bias=bias)
        self.mlp_parts = MlpParts(bias=bias)
