"""Tele-FLM: Llama with multipliers of embeddings and logits, if `use_mup` says so.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder


class TeleFlmModel(Decoder):
    """One Tele-FLM model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if flag(config, "use_mup", False):
            self.embedding_scale = number(config, "input_mult", 1.0)
            width = number(config, "mup_scale_factor", 1.0, least=1e-6)
            self.logits_scale = number(config, "output_mult", 1.0) / width
