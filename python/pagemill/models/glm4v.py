"""GLM-4.1V, GLM-4.5V and GLM-4.6V: a vision tower, and GLM-4, dense or with experts, with positions
of three dimensions.

Weights: `model.visual.` (glm4v_vision.py), and GLM-4's with `language_model.` behind `model.`.
"""

from __future__ import annotations

from pagemill.models.glm4v_vision import Glm4vVisionTower
from pagemill.models.language_part import Glm4vLanguagePart
from pagemill.models.qwen2_vl import Qwen2VlModel


class Glm4vModel(Qwen2VlModel):
    """One model of the family."""

    tower = Glm4vVisionTower
    part = Glm4vLanguagePart
