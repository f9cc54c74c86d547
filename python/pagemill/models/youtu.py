"""Youtu-LLM: Llama with DeepSeek V3's latent attention.

Weights as Llama's, with DeepSeek-V3's in `self_attn`.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.latent_keys import read_latent


class YoutuModel(Decoder):
    """One Youtu-LLM model."""

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(config, tied_by_default=True, rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = flag(config, "rope_interleave", True)
