"""LFM3-VL: a vision tower for images of any size and frames of videos, squares of patches merged in
a projector, and LFM3.

Weights: `vision_tower.` (lfm3_vl_vision.py), `multi_modal_projector.{layer_norm, linear_1,
linear_2}` and LFM3's with `language_model.` behind `model.`, all behind `model.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelTraits
from pagemill.models.config_keys import Defaults, activation, flag, inner_config, positive_int
from pagemill.models.multimodal.decoder_part import decoder_part
from pagemill.models.multimodal.grid_media import GridMediaModel, placeholders_of
from pagemill.models.vision.lfm3_vl_vision import Lfm3VlVisionTower
from pagemill.models.vision.video_frames import VISION_ENDS, timed_items
from pagemill.ops.trace import Tensor

_EPS = 1e-6
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {"image_token_id": 125_030, "video_token_id": 125_029, "tie_word_embeddings": True}


class Lfm3VlModel(GridMediaModel):
    """One LFM3-VL model."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        text = decoder_part(config, ("lfm3",))
        tower = Lfm3VlVisionTower(inner_config(config, "vision_config"))
        super().__init__(text, tower, placeholders_of(config, text.traits.vocab_size))
        self._projected = positive_int(config, "projector_hidden_size", 4096)
        self._activation = activation(config, "projector_hidden_act", "gelu")
        self._bias = flag(config, "projector_bias", True)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        return replace(traits, media=replace(traits.media, video_ends=VISION_ENDS))

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Each has in front of it when it is: between its first and its last frame."""
        return [*timed_items(items, times, self._tower.frames)]

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("model.vision_tower."), inputs)
        projector = weights.within("model.multi_modal_projector.")
        x = norm.layer_norm(projector, "layer_norm", x, _EPS)
        x = ops.select_rows(x, inputs.media.tokens, count=self._tower.merge**2)
        x = linear(projector, "linear_1", x, (self._projected,), bias=self._bias)
        x = ops.activation(x, self._activation)
        return linear(projector, "linear_2", x, (self._text.traits.hidden_size,), bias=self._bias)
