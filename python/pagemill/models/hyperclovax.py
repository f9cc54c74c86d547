"""HyperCLOVA X: Granite with a norm behind each branch.

Weights as Llama's, plus `post_norm1` and `post_norm2`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class HyperClovaXModel(Decoder):
    """One HyperCLOVA X model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_scale = number(config, "attention_multiplier", self.sizes.head_dim**-0.5)
        self.embedding_scale = number(config, "embedding_multiplier", 1.0)
        self.scales_media = True
        self.residual_scale = number(config, "residual_multiplier", 1.0)
        self.logits_scale = number(config, "logits_scaling", 1.0)
        self._post_norm = flag(config, "use_post_norm", True)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        y = super().attention(weights, layer, x, rotary)
        return self.norm(weights, f"{self.prefix(layer)}.post_norm1", y) if self._post_norm else y

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        y = super().feed_forward(weights, layer, x)
        return self.norm(weights, f"{self.prefix(layer)}.post_norm2", y) if self._post_norm else y
