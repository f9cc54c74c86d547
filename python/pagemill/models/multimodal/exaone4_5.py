"""EXAONE 4.5: Qwen2.5-VL's vision tower with fewer heads of keys and values, and EXAONE 4, whose
tokens of images and videos have the positions of text.

Weights: `model.visual.` (qwen2_5_vl_vision.py), and EXAONE 4's with `language_model.` behind
`model.`.
"""

from __future__ import annotations

from typing import Self

from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import inner_config
from pagemill.models.multimodal.grid_media import GridMediaModel, placeholders_of
from pagemill.models.multimodal.language_part import Exaone45LanguagePart
from pagemill.models.vision.qwen2_5_vl_vision import Exaone45VisionTower
from pagemill.ops.trace import Tensor


class Exaone45Model(GridMediaModel):
    """One EXAONE 4.5 model: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        text = Exaone45LanguagePart(config).text
        tower = Exaone45VisionTower(inner_config(config, "vision_config"))
        tower.check_width(text.traits.hidden_size)
        super().__init__(text, tower, placeholders_of(config, text.traits.vocab_size))
        self.ignored = {r"mtp\..*": "drafts alone use it", **self.ignored}

    @classmethod
    def from_config(cls, config: Config) -> Self | Exaone45LanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return Exaone45LanguagePart(config)
        return cls(config)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._tower.hidden(weights.within("model.visual."), inputs)
