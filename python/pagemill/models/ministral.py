"""Ministral: Mistral with sliding windows on some layers.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import windows_by_type
from pagemill.models.decoder import Decoder


class MinistralModel(Decoder):
    """One Ministral model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.windows = windows_by_type(config, self.sizes.layers, pattern=1)
