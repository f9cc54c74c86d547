"""Gemma 4 with images: its vision tower, one linear layer, and Gemma 4's decoder, in whose windowed
layers the tokens of an image may see each other.

Weights: `vision_tower.` (gemma4_vision.py), `embed_vision.embedding_projection` and
`language_model.` (gemma4.py). All may be behind `model.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import Config, EncoderInputs, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import ignored_in_part, parts_weights
from pagemill.models.multimodal.language_part import Gemma4LanguagePart
from pagemill.models.vision.gemma4_vision import Gemma4VisionTower
from pagemill.ops.trace import Tensor

_START, _END = "<|image>", "<image|>"
_MOST_TOKENS = 1120  # of an image, as its processor's settings allow


class Gemma4MediaModel(Gemma4LanguagePart):
    """One Gemma 4 model with its tower: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        config = Defaults(config, {"image_token_id": 258880})
        self._tower = Gemma4VisionTower(inner_config(config, "vision_config"))
        self._placeholder = token_id(config, "image_token_id", self.text.traits.vocab_size)
        sees = inner_config(config, "text_config").get("use_bidirectional_attention")
        self._items_see = sees == "vision"
        self.ignored = {
            r"(model\.)?(audio_tower|embed_audio)\..*": "text and images are served",
            **ignored_in_part(self.text),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self | Gemma4LanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return Gemma4LanguagePart(config)
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        text = self.text.traits
        media = self._tower.media_traits(
            width=text.hidden_size, placeholder=self._placeholder, grid=True
        )
        media = replace(media, item_ends=self._items_see, most_tokens=_MOST_TOKENS)
        return replace(text, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        return _START, image, _END

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        name = "embed_vision.embedding_projection"
        parts = parts_weights(weights, f"{name}.weight")
        x = self._tower.hidden(PrefixedWeights(parts, "vision_tower."), inputs)
        return linear(parts, name, x, (self.text.traits.hidden_size,))
