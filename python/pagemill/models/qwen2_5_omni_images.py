"""Qwen2.5-Omni's thinker with its vision tower, which is Qwen2.5-VL's, for images and videos, and
without the audio tower.

Weights: as qwen2_5_omni.py has them, with those of `visual.` (qwen2_5_vl_vision.py).
"""

from __future__ import annotations

from typing import Self

from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import inner_config
from pagemill.models.omni_thinker import UNUSED, thinker_config, thinker_weights
from pagemill.models.qwen2_5_vl_vision import Qwen25OmniVisionTower
from pagemill.models.qwen2_vl import Qwen25VlModel
from pagemill.ops.trace import Tensor

_POSITIONS_PER_SECOND = 25  # of its configuration's class


class Qwen25OmniImageModel(Qwen25VlModel):
    """The thinker of one Qwen2.5-Omni model, for text, images and videos."""

    tower = Qwen25OmniVisionTower

    def __init__(self, config: Config) -> None:
        thinker = thinker_config(config)
        per_second = thinker.get("position_id_per_seconds", _POSITIONS_PER_SECOND)
        vision = {**inner_config(thinker, "vision_config"), "tokens_per_second": per_second}
        ids = {
            f"{kind}_token_id": thinker[f"{kind}_token_index"]
            for kind in ("image", "video")
            if f"{kind}_token_index" in thinker
        }
        super().__init__({**thinker, **ids, "vision_config": vision})
        self.ignored = {
            **self.ignored,
            **UNUSED,
            r"(thinker\.)?(model\.)?audio_tower\..*": "it takes no audio",
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return super().embeddings(thinker_weights(weights), inputs)

    def named(self, weights: Weights) -> Weights:
        return super().named(thinker_weights(weights))
