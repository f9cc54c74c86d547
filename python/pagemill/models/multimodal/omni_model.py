"""A thinker with an encoder of images and videos, and one of audio: Qwen's Omni models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelEncoder, ModelTraits, StepInputs
from pagemill.models.config_keys import token_id
from pagemill.models.decoder import Decoder
from pagemill.models.multimodal.omni_thinker import UNUSED, thinker_config
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.ops.trace import Tensor

_KINDS = ("image", "video", "audio")


class OmniModel(ABC):
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
        self._images = self.image_thinker(thinker)
        traits = self._images.traits
        assert traits.media is not None
        placeholder = token_id(thinker, "audio_token_id", traits.vocab_size)
        self._encoders = (
            ModelEncoder(traits.media, self._images),
            self.audio_encoder(thinker, placeholder, traits.hidden_size, traits.media.width),
        )
        self.ignored = {**self._images.ignored, **UNUSED}

    @abstractmethod
    def image_thinker(self, thinker: Config) -> Qwen2VlModel:
        """The thinker without its encoder of audio."""

    @abstractmethod
    def audio_encoder(
        self, thinker: Config, placeholder: int, hidden: int, width: int
    ) -> ModelEncoder:
        """The encoder of audio for a language model with `hidden` features, which makes embeddings
        of `width` elements."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return replace(self._images.traits, media=None)

    @property
    def encoders(self) -> Sequence[ModelEncoder]:
        return self._encoders

    @property
    def text(self) -> Decoder:
        return self._images.text

    def named(self, weights: Weights) -> Weights:
        return self._images.named(weights)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._images.hidden(weights, inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._images.logits(weights, rows)
