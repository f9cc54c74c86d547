"""Ernie 4.5: Llama with interleaved rotary pairs and one switch for all biases.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder


class Ernie45Model(Decoder):
    """One dense Ernie 4.5 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("rms_norm_eps", 1e-5))
        self.interleaved = True
        bias = flag(config, "use_bias", False)
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias)
        self.mlp_parts = MlpParts(bias=bias)
