"""Gemma: Llama with GELU, embeddings times sqrt(hidden size), and norm weights stored minus 1.

Weights as Llama's, the head tied. GGUF stores norm weights whole (`norm_weight_offset`).
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import activation, number
from pagemill.models.decoder import Decoder


class GemmaModel(Decoder):
    """One Gemma model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True)
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self.activation = activation(config, "hidden_act", "gelu_pytorch_tanh")
        # `transformers` rounds this scale to the type of the weights: here, as there with f32
        # weights, that is f32.
        self.embedding_scale = self.sizes.hidden_size**0.5
