"""Qwen3-VL, dense and with experts: a vision tower whose results of several layers are added in the
first layers of Qwen3, with positions of three dimensions.

Weights: `model.visual.` (qwen3_vl_vision.py), and Qwen3's with `language_model.` behind `model.`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.models.base import Config, MediaPart, ModelConfigError
from pagemill.models.multimodal.language_part import Qwen3VlLanguagePart
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.vision.qwen3_vl_vision import Qwen3VlVisionTower
from pagemill.models.vision.video_frames import VISION_ENDS, timed_items


class Qwen3VlModel(Qwen2VlModel):
    """One Qwen3-VL model."""

    tower = Qwen3VlVisionTower
    part = Qwen3VlLanguagePart
    video_ends = VISION_ENDS

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        deep = self._tower.result_width // self._tower.width - 1
        layers = self._text.sizes.layers
        if deep > layers:
            raise ModelConfigError(
                f"deepstack_visual_indexes has {deep} layers, but the language model has {layers}"
            )

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Each has in front of it when it is: between its first and its last frame."""
        assert self.video_ends is not None
        return [*timed_items(items, times, self._tower.frames, self.video_ends)]
