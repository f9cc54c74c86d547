"""Helium: Llama with interleaved rotary pairs.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.decoder import Decoder


class HeliumModel(Decoder):
    """One Helium model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-8))
        self.interleaved = True
