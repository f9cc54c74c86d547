"""Qwen3-VL, dense and with experts: a vision tower whose results of several layers are added in the
first layers of Qwen3, with positions of three dimensions.

Weights: `model.visual.` (qwen3_vl_vision.py), and Qwen3's with `language_model.` behind `model.`.
"""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.language_part import Qwen3VlLanguagePart
from pagemill.models.qwen2_vl import Qwen2VlModel
from pagemill.models.qwen3_vl_vision import Qwen3VlVisionTower


class Qwen3VlModel(Qwen2VlModel):
    """One Qwen3-VL model."""

    tower = Qwen3VlVisionTower
    part = Qwen3VlLanguagePart

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        deep = self._tower.result_width // self._tower.width - 1
        layers = self._text.sizes.layers
        if deep > layers:
            raise ModelConfigError(
                f"deepstack_visual_indexes has {deep} layers, but the language model has {layers}"
            )
