"""EXAONE 4.5: Qwen2.5-VL's vision tower with fewer heads of keys and values, and EXAONE 4, whose
tokens of images and videos have the positions of text.

Weights: `model.visual.` (qwen2_5_vl_vision.py), and EXAONE 4's with `language_model.` behind
`model.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import inner_config, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, ignored_in_part
from pagemill.models.multimodal.language_part import Exaone45LanguagePart
from pagemill.models.vision.qwen2_5_vl_vision import Exaone45VisionTower
from pagemill.models.vision.video_frames import split_video
from pagemill.ops.trace import Tensor


class Exaone45Model(WithDecoder):
    """One EXAONE 4.5 model: a `TiledModel` (base.py)."""

    ignored: Mapping[str, str] = {}

    def __init__(self, config: Config) -> None:
        self._text = Exaone45LanguagePart(config).text
        self.ignored = {r"mtp\..*": "drafts alone use it", **ignored_in_part(self._text)}
        self._tower = Exaone45VisionTower(inner_config(config, "vision_config"))
        traits = self._text.traits
        if self._tower.width != traits.hidden_size:
            raise ModelConfigError(
                f"vision_config's {self._tower.width_key} is {self._tower.width}, but the language"
                f" model has {traits.hidden_size}"
            )
        self._placeholders: dict[MediaKind, int] = {
            "image": token_id(config, "image_token_id", traits.vocab_size),
            "video": token_id(config, "video_token_id", traits.vocab_size),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self | Exaone45LanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return Exaone45LanguagePart(config)
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self._tower.merge**2,
            channels=self._tower.channels,
            tokens=1,
            width=self._tower.result_width,
            placeholders=self._placeholders,
            any_size=True,
            grid=True,
            placed=True,
        )
        return replace(self._text.traits, media=media)

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.kind != "video":
            return [media]
        items, _ = split_video(self._tower, media)
        return [self.features(item) for item in items]

    def features(self, image: PreparedMedia) -> MediaFeatures:
        found = self._tower.features(image)
        assert found.positions is not None
        positions = GridPositions.in_order(found.positions.rows, found.tokens)
        return MediaFeatures(found.rows, found.tokens, positions, placement=found.placement)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._tower.hidden(PrefixedWeights(weights, "model.visual."), inputs)
