"""Qwen2.5-Omni's thinker: Qwen2.5-VL's vision tower for images and videos, an encoder of audio
(qwen2_5_omni_audio.py), and Qwen2 with positions of three dimensions. The talker, which speaks, is
left out.

Weights: `visual.` (qwen2_5_vl_vision.py), `audio_tower.`, and Qwen2's; all but the head may be
behind `model.`, Qwen2's with `language_model.` behind it; and all behind `thinker.`
(omni_thinker.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelEncoder, ModelTraits
from pagemill.models.config_keys import inner_config, positive_int, token_id
from pagemill.models.multimodal.omni_model import OmniModel
from pagemill.models.multimodal.omni_thinker import thinker_weights
from pagemill.models.multimodal.qwen2_5_omni_audio import Qwen25OmniAudioEncoder
from pagemill.models.multimodal.qwen2_vl import Qwen25VlModel
from pagemill.models.multimodal.video_sound import in_chunks
from pagemill.models.vision.qwen2_5_vl_vision import Qwen25OmniVisionTower
from pagemill.models.vision.video_frames import split_video
from pagemill.ops.trace import Tensor

# Those of its configuration's class.
_POSITIONS_PER_SECOND = 25
_SECONDS_PER_CHUNK = 2
_SOUND_ENDS = ("<|audio_bos|>", "<|audio_eos|>")


class Qwen25OmniModel(OmniModel):
    """The thinker of one Qwen2.5-Omni model."""

    def image_thinker(self, thinker: Config) -> Qwen25VlModel:
        return _ImageThinker(thinker)

    def audio_encoder(
        self, thinker: Config, placeholder: int, hidden: int, width: int
    ) -> ModelEncoder:
        assert hidden == width
        encoder = Qwen25OmniAudioEncoder(thinker, placeholder, width)
        return ModelEncoder(encoder.traits, encoder)


class _ImageThinker(Qwen25VlModel):
    """The thinker without its encoder of audio."""

    tower = Qwen25OmniVisionTower

    def __init__(self, thinker: Config) -> None:
        per_second = thinker.get("position_id_per_seconds", _POSITIONS_PER_SECOND)
        vision = {**inner_config(thinker, "vision_config"), "tokens_per_second": per_second}
        super().__init__({**thinker, "vision_config": vision})
        text = self._text.traits
        audio_token = token_id(thinker, "audio_token_id", text.vocab_size)
        self._sound = Qwen25OmniAudioEncoder(thinker, audio_token, text.hidden_size)
        seconds = positive_int(thinker, "seconds_per_chunk", _SECONDS_PER_CHUNK)
        self._chunk = self._positions_per_second * seconds

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        whole_parts = self._chunk % self._sound.part_tokens == 0
        return replace(traits, media=replace(traits.media, video_sound=whole_parts))

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.sound is None:
            return super().layout(media)
        items, times = split_video(self._tower, media)
        frames = [self._tower.features(item) for item in items]
        sound = self._sound.parts(media.sound)
        parts = in_chunks(frames, self.video_times(len(items), times), sound, self._chunk)
        return [_SOUND_ENDS[0], *parts, _SOUND_ENDS[1]]

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return super().embeddings(thinker_weights(weights), inputs)

    def named(self, weights: Weights) -> Weights:
        return super().named(thinker_weights(weights))
