"""VideoLLaMA 3: SigLIP's tower for images of any size, a projector of two linear layers, and Qwen2.
Videos are not read.

Weights: `model.vision_model.` (video_llama3_vision.py), `model.projector.readout.{0,2}`, and
Qwen2's with `language_model.` behind `model.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelTraits
from pagemill.models.config_keys import inner_config, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.models.vision.video_llama3_vision import VideoLlama3VisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor


class VideoLlama3Model(WithDecoder):
    """One VideoLLaMA 3 model."""

    ignored: Mapping[str, str] = {}

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, ("qwen2",))
        self.ignored = ignored_in_part(self._text)
        self._tower = VideoLlama3VisionTower(inner_config(config, "vision_config"))
        self._placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=1,
            channels=self._tower.channels,
            tokens=1,
            width=self._text.traits.hidden_size,
            placeholders={"image": self._placeholder},
            any_size=True,
            grid=True,
        )
        return replace(self._text.traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        found = self._tower.features(image)
        assert found.positions is not None
        positions = GridPositions.in_order(found.positions.rows, found.tokens)
        return MediaFeatures(found.rows, found.tokens, positions)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = PrefixedWeights(weights, "model.")
        x = self._tower.hidden(PrefixedWeights(parts, "vision_model."), inputs)
        x = ops.select_rows(x, inputs.media.tokens)
        projector = PrefixedWeights(parts, "projector.readout.")
        width = self._text.traits.hidden_size
        x = ops.activation(linear(projector, "0", x, (width,), bias=True), ActivationKind.GELU)
        return linear(projector, "2", x, (width,), bias=True)
