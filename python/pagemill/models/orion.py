"""Orion: Llama with layer norms.

Weights as Llama's; norms have biases.
"""

from __future__ import annotations

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class OrionModel(Decoder):
    """One Orion model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, self.sizes.norm_eps)
