"""Jais 2: Arcee with layer norms.

Weights as Llama's, without `mlp.gate_proj`; norms have biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import activation, flag
from pagemill.models.decoder import Decoder


class Jais2Model(Decoder):
    """One Jais 2 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self.mlp_parts = MlpParts(up=("up_proj",), gated=False, bias=flag(config, "mlp_bias", True))
        bias = flag(config, "attention_bias", True)
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias)
        self.activation = activation(config, "hidden_act", "relu2")
