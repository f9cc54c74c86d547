"""RWKV-5: RWKV-4 whose heads remember matrices.

Weights: those of `models.rwkv_decoder`, with the mixers of `layers.matrix_wkv`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.matrix_wkv import rwkv5_mixer
from pagemill.layers.wkv import RWKV4_SHIFT, shifted_mlp
from pagemill.models.base import Config
from pagemill.models.rwkv_decoder import RwkvDecoder, intermediate_size, wkv_heads
from pagemill.ops.trace import Tensor


class Rwkv5Model(RwkvDecoder):
    """One RWKV-5 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._intermediate_size = intermediate_size(config)
        self._heads = wkv_heads(config)

    def mixer(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        return rwkv5_mixer(weights, prefix, x, self._heads, layer)

    def feed_forward(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        mixed = RWKV4_SHIFT.mixed(weights, prefix, x, f"mlp{layer}")
        return shifted_mlp(
            weights, prefix, mixed("key"), mixed("receptance"), self._intermediate_size
        )
