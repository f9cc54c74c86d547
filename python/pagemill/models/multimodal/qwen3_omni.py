"""Qwen3-Omni's thinker: Qwen3-VL's vision tower for images and videos, and Qwen3 with experts and
positions of three dimensions, and an encoder of audio (qwen3_omni_audio.py). The talker, which
speaks, is left out.

Weights: `visual.` (qwen3_vl_vision.py), `audio_tower.`, and Qwen3's; all but the head may be behind
`model.`, Qwen3's with `language_model.` behind it; and all behind `thinker.` (omni_thinker.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelEncoder
from pagemill.models.config_keys import inner_config, positive_int, rope_parameters
from pagemill.models.multimodal.language_part import Qwen3OmniLanguagePart
from pagemill.models.multimodal.omni_model import OmniModel
from pagemill.models.multimodal.omni_thinker import thinker_weights
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.multimodal.qwen3_omni_audio import Qwen3OmniAudioEncoder
from pagemill.models.multimodal.qwen3_vl import Qwen3VlModel
from pagemill.models.vision.qwen3_vl_vision import Qwen3OmniVisionTower
from pagemill.models.vision.video_frames import positions_of_items
from pagemill.ops.trace import Tensor

# That of the class in `transformers`, whose sections take turns whatever is stated.
_SECTIONS = [24, 20, 20]


class Qwen3OmniModel(OmniModel):
    """The thinker of one Qwen3-Omni model."""

    def image_thinker(self, thinker: Config) -> Qwen3VlModel:
        return _ImageThinker(thinker)

    def audio_encoder(
        self, thinker: Config, placeholder: int, hidden: int, width: int
    ) -> ModelEncoder:
        encoder = Qwen3OmniAudioEncoder(thinker, placeholder, hidden, width)
        return ModelEncoder(encoder.traits, encoder)


class _ImageThinker(Qwen3VlModel):
    """The thinker without its encoder of audio."""

    tower = Qwen3OmniVisionTower
    part = Qwen3OmniLanguagePart
    video_ends = None

    def __init__(self, thinker: Config) -> None:
        text = inner_config(thinker, "text_config")
        rope = {"mrope_section": _SECTIONS, **rope_parameters(text), "mrope_interleaved": True}
        super().__init__({**thinker, "text_config": {**text, "rope_parameters": rope}})
        self._positions_per_second = positive_int(thinker, "position_id_per_seconds", 25)

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """As Qwen2.5-VL's: their times are positions."""
        return Qwen2VlModel.video_layout(self, items, times)

    def video_times(self, items: int, times: FrameTimes) -> list[int]:
        return positions_of_items(items, times, self._tower.frames, self._positions_per_second)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return super().embeddings(thinker_weights(weights), inputs)

    def named(self, weights: Weights) -> Weights:
        return super().named(thinker_weights(weights))
