"""RWKV-4: recurrent layers only.

Weights: those of `models.rwkv_decoder`, with the layers of `layers.wkv`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.wkv import RWKV4_SHIFT, shifted_mlp, wkv_mixer
from pagemill.models.base import Config
from pagemill.models.config_keys import positive_int
from pagemill.models.rwkv_decoder import RwkvDecoder
from pagemill.ops.trace import Tensor


class RwkvModel(RwkvDecoder):
    """One RWKV-4 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        size = 4 * self.hidden_size
        self._intermediate_size = positive_int(config, "intermediate_size", size)
        self._channels = positive_int(config, "attention_hidden_size", self.hidden_size)

    def mixer(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        return wkv_mixer(weights, prefix, x, self._channels, layer)

    def feed_forward(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        mixed = RWKV4_SHIFT.mixed(weights, prefix, x, f"mlp{layer}")
        return shifted_mlp(
            weights, prefix, mixed("key"), mixed("receptance"), self._intermediate_size
        )
