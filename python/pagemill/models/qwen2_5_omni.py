"""Qwen2.5-Omni's thinker: Qwen2.5-VL's vision tower for images and videos, an encoder of audio
(qwen2_5_omni_audio.py), and Qwen2 with positions of three dimensions. The talker, which speaks, is
left out.

Weights: `visual.` (qwen2_5_vl_vision.py), `audio_tower.`, and Qwen2's; all but the head may be
behind `model.`, Qwen2's with `language_model.` behind it; and all behind `thinker.`
(omni_thinker.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pagemill.layers.base import Weights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelEncoder,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import inner_config, token_id
from pagemill.models.decoder import Decoder
from pagemill.models.omni_thinker import UNUSED, thinker_config, thinker_weights
from pagemill.models.qwen2_5_omni_audio import Qwen25OmniAudioEncoder
from pagemill.models.qwen2_5_vl_vision import Qwen25OmniVisionTower
from pagemill.models.qwen2_vl import Qwen25VlModel
from pagemill.ops.trace import Tensor

_POSITIONS_PER_SECOND = 25  # of its configuration's class
_KINDS = ("image", "video", "audio")


class Qwen25OmniModel:
    """The thinker of one Qwen2.5-Omni model: an `EncodersModel` (base.py), for text, images, videos
    and audio."""

    def __init__(self, config: Config) -> None:
        # Published configurations call the tokens by an index.
        thinker = thinker_config(config)
        ids = {
            f"{kind}_token_id": thinker[f"{kind}_token_index"]
            for kind in _KINDS
            if f"{kind}_token_index" in thinker
        }
        thinker = {**thinker, **ids}
        self._images = _ImageThinker(thinker)
        traits = self._images.traits
        placeholder = token_id(thinker, "audio_token_id", traits.vocab_size)
        self._audio = Qwen25OmniAudioEncoder(thinker, placeholder, traits.hidden_size)
        self.ignored: Mapping[str, str] = {**self._images.ignored, **UNUSED}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return replace(self._images.traits, media=None)

    @property
    def encoders(self) -> Sequence[ModelEncoder]:
        images = self._images.traits.media
        assert images is not None
        return ModelEncoder(images, self._images), ModelEncoder(self._audio.traits, self._audio)

    @property
    def text(self) -> Decoder:
        return self._images.text

    def named(self, weights: Weights) -> Weights:
        return self._images.named(weights)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._images.hidden(weights, inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._images.logits(weights, rows)


class _ImageThinker(Qwen25VlModel):
    """The thinker without its encoder of audio."""

    tower = Qwen25OmniVisionTower

    def __init__(self, thinker: Config) -> None:
        per_second = thinker.get("position_id_per_seconds", _POSITIONS_PER_SECOND)
        vision = {**inner_config(thinker, "vision_config"), "tokens_per_second": per_second}
        super().__init__({**thinker, "vision_config": vision})

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return super().embeddings(thinker_weights(weights), inputs)

    def named(self, weights: Weights) -> Weights:
        return super().named(thinker_weights(weights))
