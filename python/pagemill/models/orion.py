"""Orion: Llama with layer norms.

Weights as Llama's; norms have biases.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.decoder import Decoder


class OrionModel(Decoder):
    """One Orion model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.layer_norms = True
