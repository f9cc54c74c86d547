"""MiniCPM 1 and 2: Llama with scales of embeddings, branches and logits that follow from the
model's size.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import number, refuse
from pagemill.models.decoder import Decoder


class MiniCpmModel(Decoder):
    """One MiniCPM model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "num_experts")
        super().__init__(config, tied_by_default=True)
        sizes = self.sizes
        self.embedding_scale = number(config, "scale_emb", 1.0)
        self.residual_scale = number(config, "scale_depth", 1.0) / sizes.layers**0.5
        self.logits_scale = number(config, "dim_model_base", 1, least=1) / sizes.hidden_size
