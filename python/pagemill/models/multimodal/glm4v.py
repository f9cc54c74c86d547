"""GLM-4.1V, GLM-4.5V and GLM-4.6V: a vision tower, and GLM-4, dense or with experts, with positions
of three dimensions.

Weights: `model.visual.` (glm4v_vision.py), and GLM-4's with `language_model.` behind `model.`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.models.base import MediaPart
from pagemill.models.multimodal.language_part import Glm4vLanguagePart
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.vision.glm4v_vision import Glm4vVisionTower
from pagemill.models.vision.video_frames import seconds_of_items


class Glm4vModel(Qwen2VlModel):
    """One model of the family."""

    tower = Glm4vVisionTower
    part = Glm4vLanguagePart

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Each is an image, with the second of its first frame behind it."""
        parts: list[MediaPart] = []
        for item, seconds in zip(items, seconds_of_items(times, self._tower.frames), strict=True):
            parts += ["<|begin_of_image|>", item, f"<|end_of_image|>{self.time_text(seconds[0])}"]
        return parts

    def time_text(self, seconds: float) -> str:
        """What says when a frame is."""
        return f"{int(seconds)}"


class Glm46VModel(Glm4vModel):
    """One GLM-4.6V model whose configuration is of that type. Published ones of the older type are
    a `Glm4vModel`."""

    def time_text(self, seconds: float) -> str:
        return f"{seconds:.1f} seconds"
