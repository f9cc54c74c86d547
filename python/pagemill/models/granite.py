"""Granite 3: Llama with multipliers of embeddings, scores, branches and logits.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import number
from pagemill.models.decoder import Decoder


class GraniteModel(Decoder):
    """One Granite 3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_scale = number(config, "attention_multiplier", 1.0)
        self.embedding_scale = number(config, "embedding_multiplier", 1.0)
        self.scales_media = True
        self.residual_scale = number(config, "residual_multiplier", 1.0)
        self.logits_scale = 1 / number(config, "logits_scaling", 1.0, least=1e-6)
