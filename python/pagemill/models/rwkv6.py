"""RWKV-6: RWKV-5 with decays and token shifts that depend on tokens.

Weights: those of `models.rwkv_decoder`, with the mixers of `layers.matrix_wkv`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.matrix_wkv import RWKV6_SHIFT, rwkv6_mixer
from pagemill.layers.wkv import shifted_mlp
from pagemill.models.base import Config
from pagemill.models.rwkv_decoder import RwkvDecoder, intermediate_size, wkv_heads
from pagemill.ops.trace import Tensor

# Ranks of the matrices that make token shifts and decays, which no key states: twice as much in
# the large models, those of this hidden size.
_RANKS = (32, 64)
_LARGE_HIDDEN_SIZE = 4096


class Rwkv6Model(RwkvDecoder):
    """One RWKV-6 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._intermediate_size = intermediate_size(config)
        self._heads = wkv_heads(config)
        twice = 2 if self.hidden_size == _LARGE_HIDDEN_SIZE else 1
        self._ranks = (twice * _RANKS[0], twice * _RANKS[1])

    def mixer(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        return rwkv6_mixer(weights, prefix, x, self._heads, layer, self._ranks)

    def feed_forward(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        mixed = RWKV6_SHIFT.mixed(weights, prefix, x, f"mlp{layer}")
        return shifted_mlp(weights, prefix, mixed("k"), mixed("r"), self._intermediate_size)
