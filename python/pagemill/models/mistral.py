"""Mistral: Llama with a sliding window on all layers, or on none.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import window_or_full
from pagemill.models.decoder import Decoder


class MistralModel(Decoder):
    """One Mistral model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.windows = (window_or_full(config),) * self.sizes.layers
