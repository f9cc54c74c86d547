"""A thinker with an encoder of images and videos, and one of audio: Qwen's Omni models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

from pagemill.models.base import Config, ModelEncoder
from pagemill.models.config_keys import token_id
from pagemill.models.multimodal.omni_thinker import UNUSED, thinker_config
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.multimodal.two_encoders import TwoEncoders

_KINDS = ("image", "video", "audio")


class OmniModel(TwoEncoders, ABC):
    """An `EncodersModel` (base.py) for text, images, videos and audio. A subclass has the thinker
    of text and images, and the encoder of audio, whose embeddings are as wide as those of
    images."""

    ignored: Mapping[str, str] = UNUSED

    def __init__(self, config: Config) -> None:
        # Published configurations may call the tokens by an index.
        thinker = thinker_config(config)
        ids = {
            f"{kind}_token_id": thinker[f"{kind}_token_index"]
            for kind in _KINDS
            if thinker.get(f"{kind}_token_index") is not None
        }
        thinker = {**thinker, **ids}
        images = self.image_thinker(thinker)
        traits = images.traits
        assert traits.media is not None
        placeholder = token_id(thinker, "audio_token_id", traits.vocab_size)
        hidden, width = traits.hidden_size, traits.media.width
        super().__init__(images, self.audio_encoder(thinker, placeholder, hidden, width))
        self.ignored = {**images.ignored, **UNUSED}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @abstractmethod
    def image_thinker(self, thinker: Config) -> Qwen2VlModel:
        """The thinker without its encoder of audio."""

    @abstractmethod
    def audio_encoder(
        self, thinker: Config, placeholder: int, hidden: int, width: int
    ) -> ModelEncoder:
        """The encoder of audio for a language model with `hidden` features, which makes embeddings
        of `width` elements."""
