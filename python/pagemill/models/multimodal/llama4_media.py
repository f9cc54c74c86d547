"""Llama 4 with images: its vision tower, one linear layer, and Llama 4's decoder.

Weights: `vision_model.` (llama4_vision.py), `multi_modal_projector.linear_1` and `language_model.`
(llama4.py).

An image is divided into tiles of the tower's size, and the whole image, resized to one tile, comes
behind them. Each tile attends to itself alone; tokens between tiles say where rows end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelTraits
from pagemill.models.config_keys import inner_config, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part, ignored_in_part
from pagemill.models.multimodal.language_part import LanguagePart, Llama4LanguagePart
from pagemill.models.vision.llama4_vision import Llama4VisionTower
from pagemill.ops.trace import Tensor

_START, _END = "<|image_start|>", "<|image_end|>"
_BEHIND_TILE, _BEHIND_ROW = "<|tile_x_separator|>", "<|tile_y_separator|>"
_WHOLE = "<|image|>"


class Llama4MediaModel(WithDecoder):
    """One Llama 4 model: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, ("llama4_text",))
        self._tower = Llama4VisionTower(inner_config(config, "vision_config"))
        self._placeholder = token_id(config, "image_token_index", self._text.traits.vocab_size)
        self.ignored = ignored_in_part(self._text)

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        """A configuration without a tower is that of the text alone."""
        if config.get("vision_config") is None:
            return Llama4LanguagePart(config)
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = self._tower.grid.media_traits(
            width=self._text.traits.hidden_size,
            placeholder=self._placeholder,
            class_tokens=self._tower.class_tokens,
            grid=True,
        )
        return replace(self._text.traits, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[PreparedMedia | str]:
        tile_rows, whole = self._tower.grid.tile_rows(image)
        parts: list[PreparedMedia | str] = [_START]
        for *tiles, last in tile_rows:
            for tile in tiles:
                parts += tile, _BEHIND_TILE
            parts += last, _BEHIND_ROW
        return *parts, _WHOLE, whole, _END

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("vision_model."), inputs)
        width = self._text.traits.hidden_size
        return linear(weights, "multi_modal_projector.linear_1", x, (width,))
