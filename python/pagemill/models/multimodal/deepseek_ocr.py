"""DeepSeek-OCR: its vision model, a linear layer, and DeepSeekMoE.

Weights: `model.` (deepseek_ocr_vision.py), `model.projector.layers`, `model.image_newline`,
`model.view_seperator` and those of deepseek.py.

A large image is divided into tiles, whose rows of vectors go across tiles and come in front of
those of the whole image. A learned token is at the end of each row, and another one behind the
image. Tiles have another size than whole images, and an encoder of their own, of the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import ROW_END, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.computed import resampled
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelEncoder,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, inner_config, number, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part
from pagemill.models.multimodal.deepseek_ocr2 import tiles_and_whole
from pagemill.models.vision.deepseek_ocr_vision import TILE_SIDE, DeepseekOcrVision
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_MOST_TILES = 32
_TEXT_KIND = "deepseek_ocr2_text"
# That of the model's own code: its configuration has none.
_TOKEN = {"image_token_id": 128815}


class DeepseekOcrModel(WithDecoder):
    """One DeepSeek-OCR model: an `EncodersModel` (base.py), of whole images and of tiles."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _TOKEN)
        text = inner_config(config, "language_config")
        method = text.get("topk_method", "greedy")
        plain = method == "greedy" and number(text, "routed_scaling_factor", 1.0) == 1
        if not plain or text.get("use_mla", True):
            raise ModelConfigError(
                f"topk_method is {shown(method)}; it must be 'greedy', routed_scaling_factor 1 and"
                " use_mla false"
            )
        read = {**text, "model_type": _TEXT_KIND}
        self._text = decoder_part({"text_config": read}, (_TEXT_KIND,))
        self.ignored = {
            r"model\.vision_model\.embeddings\.patch_embedding\..*": "SAM's tower cuts patches",
            r"model\.vision_model\.embeddings\.position_ids": "positions count up from 0",
            **self._text.ignored,
        }
        placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)
        vision, width = inner_config(config, "vision_config"), self._text.traits.hidden_size
        tiles = TileEncoder(DeepseekOcrVision(vision, side=TILE_SIDE), width, placeholder)
        whole = ImageEncoder(DeepseekOcrVision(vision), width, placeholder, tiles)
        self.encoders = [ModelEncoder(each.media, each) for each in (whole, tiles)]

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._text.traits

    def named(self, weights: Weights) -> Weights:
        return weights


class TileEncoder:
    """That of all tiles of an image, which are one item: a `RowEndModel` (base.py)."""

    most_tiles = _MOST_TILES

    def __init__(self, vision: DeepseekOcrVision, width: int, placeholder: int) -> None:
        self.vision = vision
        self.width = width
        self._placeholder = placeholder

    @property
    def media(self) -> MediaTraits:
        """What it takes."""
        media = self.vision.tower.media_traits(width=self.width, placeholder=self._placeholder)
        most = self.most_tiles * self.vision.side * (self.vision.side + 1) + 1
        return replace(media, any_size=True, tiles=True, most_tokens=most)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Pixels of tiles row by row, with the grid (1, rows, columns): a token for each of their
        vectors, row by row across tiles, and one for the end of each row."""
        assert image.grid is not None
        _, rows, columns = image.grid
        tower, side, tokens = self.vision.tower, self.vision.side, self.vision.tokens
        tiles = [tower.features(PreparedMedia("image", tile)).rows for tile in image.values]
        first = tokens * np.arange(rows * columns, dtype=np.int32).reshape(rows, 1, columns, 1)
        inside = np.arange(side**2, dtype=np.int32).reshape(1, side, 1, side)
        lines = np.pad(
            (first + inside).reshape(rows * side, columns * side),
            ((0, 0), (0, 1)),
            constant_values=ROW_END,
        )
        placement = np.ascontiguousarray(lines.reshape(-1), np.int32)
        return MediaFeatures(np.concatenate(tiles), len(placement), placement=placement)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Those of an image's class token are the learned token behind a whole image."""
        x = self.vision.hidden(weights.within("model."), inputs)
        x = linear(weights, "model.projector.layers", x, (self.width,), bias=True)
        own, tokens = self.vision.class_token(), self.vision.tokens
        kept = np.where(own == 0, np.arange(tokens)[:, None], -1).astype(np.int32)
        x = ops.unfold_listed(x, weights.index("without_class_token", kept[:, None]), self.width)
        shape = (tokens, self.width)
        separator = resampled(weights, "model.view_seperator", shape[1:], own, shape)
        return ops.add(ops.embedding(inputs.positions, separator), x)

    def row_end(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        newline = weights.vectors(("model.image_newline",), self.width, table=True)
        return ops.embedding(inputs.positions, newline, outside=0)


class ImageEncoder(TileEncoder):
    """That of whole images: a `TiledModel` (base.py), too."""

    most_tiles = 1

    def __init__(
        self, vision: DeepseekOcrVision, width: int, placeholder: int, tiles: TileEncoder
    ) -> None:
        super().__init__(vision, width, placeholder)
        self._tiles = tiles

    def layout(self, image: PreparedMedia) -> Sequence[MediaFeatures]:
        """An image, pixels [3, height, width]; or with a grid those of `tiles_and_whole`."""
        if image.grid is None:
            return [self.features(image)]
        shapes = self._tiles.vision.tower.image_shape, self.vision.tower.image_shape
        pixels, whole = tiles_and_whole(image, *shapes, self._tiles.most_tiles)
        tiles = self._tiles.features(PreparedMedia("image", pixels, image.grid))
        of_next = MediaFeatures(tiles.rows, tiles.tokens, placement=tiles.placement, encoder=1)
        return [of_next, self.features(PreparedMedia("image", whole))]

    def features(self, image: PreparedMedia) -> MediaFeatures:
        if image.grid is not None:
            raise ValueError("an image of this model is an array of pixels, without a grid")
        whole = super().features(PreparedMedia("image", image.values[None], (1, 1, 1)))
        assert whole.placement is not None
        placement = np.append(whole.placement, np.int32(self.vision.tokens - 1))
        return MediaFeatures(whole.rows, len(placement), placement=placement)
