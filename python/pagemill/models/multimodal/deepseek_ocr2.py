"""DeepSeek-OCR 2: its vision model, a linear layer, and DeepSeekMoE.

Weights: `model.` (deepseek_ocr2_vision.py), `model.projector.layers`, `model.view_seperator` and
those of deepseek.py.

An image is divided into tiles, in front of the whole image, if it is large; the whole one has a
learned token behind it. Tiles have another size than whole images, and an encoder of their own, of
the same weights.
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
from pagemill.models.vision.deepseek_ocr2_vision import TILE_SIDE, DeepseekOcr2Vision
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_MOST_TILES = 64
_TEXT_KIND = "deepseek_ocr2_text"
_TOKEN = {"image_token_id": 128815}
# Those of the configuration's class.
_TEXT = {
    "model_type": _TEXT_KIND,
    "vocab_size": 102400,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}


class DeepseekOcr2Model(WithDecoder):
    """One DeepSeek-OCR 2 model: an `EncodersModel` (base.py), of whole images and of tiles."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _TOKEN)
        text = Defaults(inner_config(config, "text_config"), _TEXT)
        method = text.get("topk_method", "greedy")
        if method != "greedy" or number(text, "routed_scaling_factor", 1.0) != 1:
            raise ModelConfigError(
                f"topk_method is {shown(method)}; it must be 'greedy', and routed_scaling_factor 1"
            )
        self._text = decoder_part({**config, "text_config": {**text}}, (_TEXT_KIND,))
        self.ignored = self._text.ignored
        placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)
        vision, width = inner_config(config, "vision_config"), self._text.traits.hidden_size
        tiles = TileEncoder(DeepseekOcr2Vision(vision, side=TILE_SIDE), width, placeholder)
        whole = ImageEncoder(DeepseekOcr2Vision(vision), width, placeholder, tiles)
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
    """That of tiles: a `MediaEncoder` (base.py)."""

    def __init__(self, vision: DeepseekOcr2Vision, width: int, placeholder: int) -> None:
        self.vision = vision
        self.width = width
        self._placeholder = placeholder

    @property
    def media(self) -> MediaTraits:
        """What it takes."""
        tower = self.vision.tower
        return tower.media_traits(width=self.width, placeholder=self._placeholder)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self.vision.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self.vision.hidden(weights.within("model."), inputs)
        return linear(weights, "model.projector.layers", x, (self.width,), bias=True)


class ImageEncoder(TileEncoder):
    """That of whole images: a `TiledModel` and a `RowEndModel` (base.py)."""

    def __init__(
        self, vision: DeepseekOcr2Vision, width: int, placeholder: int, tiles: TileEncoder
    ) -> None:
        super().__init__(vision, width, placeholder)
        self._tiles = tiles

    @property
    def media(self) -> MediaTraits:
        media = super().media
        return replace(media, any_size=True, tiles=True, most_tokens=media.tokens + 1)

    def layout(self, image: PreparedMedia) -> Sequence[MediaFeatures]:
        """An image, pixels [3, height, width]; or with a grid those of `tiles_and_whole`."""
        if image.grid is None:
            return [self.features(image)]
        shapes = self._tiles.vision.tower.image_shape, self.vision.tower.image_shape
        tiles, whole = tiles_and_whole(image, *shapes, _MOST_TILES)
        items = [self._tiles.features(PreparedMedia("image", tile)) for tile in tiles]
        of_tiles = [MediaFeatures(item.rows, item.tokens, encoder=1) for item in items]
        return [*of_tiles, self.features(PreparedMedia("image", whole))]

    def features(self, image: PreparedMedia) -> MediaFeatures:
        item = super().features(image)
        placement = np.append(np.arange(item.tokens, dtype=np.int32), np.int32(ROW_END))
        return MediaFeatures(item.rows, len(placement), placement=placement)

    def row_end(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        separator = weights.vectors(("model.view_seperator",), self.width, table=True)
        return ops.embedding(inputs.positions, separator, outside=0)


def tiles_and_whole(
    image: PreparedMedia, tile: tuple[int, ...], whole: tuple[int, ...], most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of an image with a grid (1, rows, columns), whose pixels are one array, those of its tiles
    row by row, [tiles, *tile], and behind them those of the whole image.

    Raises:
        ValueError: they are not as many, or there are more than `most` tiles.
    """
    assert image.grid is not None
    count, each, size = (int(np.prod(shape)) for shape in (image.grid, tile, whole))
    if image.values.shape != (count * each + size,) or not 0 < count <= most:
        raise ValueError(
            f"an image of {' x '.join(map(str, image.grid))} tiles must be"
            f" [{count * each + size}], {list(tile)} for each and {list(whole)}, got"
            f" {list(image.values.shape)}; it may have {most} tiles"
        )
    return image.values[:-size].reshape(count, *tile), image.values[-size:].reshape(whole)
