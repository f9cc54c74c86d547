"""Nemotron (Minitron): layer norms that hold the weight without 1, rotary pairs on a part of each
head, squared ReLU without gates.

Weights as Llama's, without `mlp.gate_proj`; norms have biases.
"""

from __future__ import annotations

from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed, activation, flag, number
from pagemill.models.decoder import Decoder


class NemotronModel(Decoder):
    """One Nemotron model."""

    def __init__(self, config: Config) -> None:
        config = Renamed(config, {}, {"partial_rotary_factor": 0.5})
        super().__init__(config, eps=("norm_eps", 1e-5))
        self.layer_norms = True
        self.mlp_parts = MlpParts(
            up=("up_proj",), gated=False, bias=flag(config, "mlp_bias", False)
        )
        self.activation = activation(config, "hidden_act", "relu2")
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
