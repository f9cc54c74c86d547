"""Qwen3.5 with images and videos, dense and with experts: Qwen3-VL's vision tower, whose last
layer alone has results, and Qwen3.5's decoder with positions of three dimensions.

Weights: `model.visual.` (qwen3_vl_vision.py), and those of qwen3_next.py with `language_model.`
behind `model.`.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults
from pagemill.models.multimodal.language_part import Qwen35LanguagePart
from pagemill.models.multimodal.qwen3_vl import Qwen3VlModel
from pagemill.models.vision.qwen3_vl_vision import Qwen3VlVisionTower


class Qwen35VisionTower(Qwen3VlVisionTower):
    """One tower."""

    kinds = ("qwen3_5_vision", "qwen3_5", "qwen3_5_moe_vision", "qwen3_5_moe")

    def __init__(self, config: Config) -> None:
        super().__init__(Defaults(config, {"deepstack_visual_indexes": []}))


class Qwen35Model(Qwen3VlModel):
    """One Qwen3.5 model."""

    tower = Qwen35VisionTower
    part = Qwen35LanguagePart
