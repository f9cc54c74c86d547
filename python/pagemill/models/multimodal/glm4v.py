"""GLM-4.1V, GLM-4.5V, GLM-4.6V and GLM-OCR: a vision tower, and GLM-4, dense or with experts, with
positions of three dimensions.

Weights: `model.visual.` (glm4v_vision.py, glm_ocr_vision.py), and GLM-4's with `language_model.`
behind `model.`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.models.base import Config, MediaPart
from pagemill.models.multimodal.language_part import Glm4vLanguagePart, GlmOcrLanguagePart
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.vision.glm4v_vision import Glm4vVisionTower
from pagemill.models.vision.glm_ocr_vision import GlmOcrVisionTower
from pagemill.models.vision.video_frames import seconds_of_items

# Of GLM-4.6V, whose configuration may be of an older type (weights/beside_config.py).
_NEWER = "Glm46VProcessor"


class Glm4vModel(Qwen2VlModel):
    """One model of the family."""

    tower = Glm4vVisionTower
    part = Glm4vLanguagePart

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._has_tenths = config.get("processor_class") == _NEWER

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Each is an image, with the second of its first frame behind it."""
        parts: list[MediaPart] = []
        for item, seconds in zip(items, seconds_of_items(times, self._tower.frames), strict=True):
            parts += ["<|begin_of_image|>", item, f"<|end_of_image|>{self.time_text(seconds[0])}"]
        return parts

    def time_text(self, seconds: float) -> str:
        """What says when a frame is."""
        return f"{seconds:.1f} seconds" if self._has_tenths else f"{int(seconds)}"


class Glm46VModel(Glm4vModel):
    """One GLM-4.6V model whose configuration is of that type."""

    def __init__(self, config: Config) -> None:
        super().__init__({**config, "processor_class": _NEWER})


class GlmOcrModel(Glm46VModel):
    """One GLM-OCR model."""

    tower = GlmOcrVisionTower
    part = GlmOcrLanguagePart
