"""CWM: Llama 3 with sliding windows on three of four layers.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import Config
from pagemill.models.config_keys import windows_by_type
from pagemill.models.decoder import Decoder


class CwmModel(Decoder):
    """One CWM model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = AttentionParts()
        self.windows = windows_by_type(config, self.sizes.layers)
