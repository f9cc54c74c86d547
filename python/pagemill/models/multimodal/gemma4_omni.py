"""Gemma 4 with images, videos and audio: E2B and E4B. The others have no encoder of audio.

Weights: those of gemma4_media.py and gemma4_audio_encoder.py.
"""

from __future__ import annotations

from typing import Self

from pagemill.models.audio.gemma4_audio_encoder import Gemma4AudioEncoder
from pagemill.models.base import Config, ModelEncoder
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import ignored_in_part
from pagemill.models.multimodal.gemma4_media import Gemma4MediaModel
from pagemill.models.multimodal.language_part import LanguagePart
from pagemill.models.multimodal.two_encoders import TwoEncoders

_TOKEN = {"audio_token_id": 258881}  # that of the configuration's class


class Gemma4OmniModel(TwoEncoders):
    """One Gemma 4 model with both encoders: an `EncodersModel` (base.py)."""

    def __init__(self, config: Config, images: Gemma4MediaModel) -> None:
        traits = images.traits
        placeholder = token_id(Defaults(config, _TOKEN), "audio_token_id", traits.vocab_size)
        audio = Gemma4AudioEncoder(
            inner_config(config, "audio_config"), traits.hidden_size, placeholder
        )
        super().__init__(images, ModelEncoder(audio.traits, audio))
        self.ignored = ignored_in_part(images.text)

    @classmethod
    def from_config(cls, config: Config) -> Self | Gemma4MediaModel | LanguagePart:
        """A configuration without one of the encoders is that of a model without it. Where tokens
        of an image see each other, those of audio would, too: such a model is served without
        audio."""
        images = Gemma4MediaModel.from_config(config)
        has_audio = config.get("audio_config") is not None
        if not isinstance(images, Gemma4MediaModel) or images.items_see or not has_audio:
            return images
        return cls(config, images)
