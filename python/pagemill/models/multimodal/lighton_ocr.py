"""LightOnOCR: Mistral 3's tower and projector, without tokens at the ends of rows, and Qwen3.

Weights: `model.vision_encoder.` (pixtral_vision.py), `model.vision_projection.` (pixtral.py) and
`model.language_model.` (qwen3.py).
"""

from __future__ import annotations

from typing import Self

from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults
from pagemill.models.multimodal.pixtral import Mistral3Model


class LightOnOcrModel(Mistral3Model):
    """One LightOnOCR model."""

    texts = ("qwen3",)
    tower, projector = "vision_encoder", "vision_projection"
    row_ends = None

    def __init__(self, config: Config) -> None:
        super().__init__(Defaults(config, {"tie_word_embeddings": True}))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)
