"""Arcee: Llama without gates in its feed-forward layers, activated by the square of ReLU.

Weights as Llama's, without `mlp.gate_proj`.
"""

from __future__ import annotations

from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import activation
from pagemill.models.decoder import Decoder


class ArceeModel(Decoder):
    """One Arcee model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.mlp_parts = MlpParts(up=("up_proj",), gated=False, bias=self.mlp_parts.bias)
        self.activation = activation(config, "hidden_act", "relu2")
