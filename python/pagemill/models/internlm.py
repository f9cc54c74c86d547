"""InternLM: Llama with biases in the attention, if `bias` says so.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder


class InternLmModel(Decoder):
    """One InternLM model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        bias = flag(config, "bias", True)
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias)
