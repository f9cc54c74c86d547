"""StarCoder2: layer norms, biases everywhere, no gates.

Weights as Llama's, with `mlp.{c_fc,c_proj}`; all have biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import activation, flag, window_or_full
from pagemill.models.decoder import Decoder


class Starcoder2Model(Decoder):
    """One StarCoder2 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("norm_epsilon", 1e-5))
        self.layer_norms = True
        bias = flag(config, "use_bias", True)
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias)
        self.mlp_parts = MlpParts(up=("c_fc",), down="c_proj", gated=False, bias=bias)
        self.activation = activation(config, "hidden_act", "gelu_pytorch_tanh")
        self.windows = (window_or_full(config),) * self.sizes.layers
