"""OLMo: Llama with layer norms that have neither weights nor biases.

Weights as Llama's, without norms.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import number
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # not in the configuration


class OlmoModel(Decoder):
    """One OLMo model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        limit = number(config, "clip_qkv", 0.0, least=0.0)
        self.attention_parts = replace(self.attention_parts, limit=limit)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, _EPS, weight=False, bias=False)
