"""LLaVA-Next (1.6) and Granite Vision: LLaVA with images in tiles, whose rows of patches go across
tiles and have a learned embedding at their ends.

Weights as LLaVA's, and `image_newline`.

An image is made to fit one of a few grids of tiles; the whole image, resized to one tile, comes in
front of them. Each tile attends to itself alone. Tokens are those of the whole image, and then, row
by row, those of all tiles together without the margins.
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
from pagemill.models.base import Config, EncoderInputs, ModelConfigError, ModelTraits
from pagemill.models.config_keys import as_list
from pagemill.models.multimodal.llava import LlavaModel
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

Size = tuple[int, int]
"""Height and width."""
_DEFAULT_SIZES = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
_MAX_SIZES = 64
_MAX_TILES = 64


class LlavaNextModel(LlavaModel):
    """One LLaVA-Next or Granite Vision model."""

    texts = ("granite", "llama", "mistral", "qwen2")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if not self._drops_class and self._tower.class_tokens:
            raise ModelConfigError(
                "vision_feature_select_strategy is 'full', but the class token has no place in rows"
                " of patches: it must be 'default'"
            )
        _, height, width = self._tower.grid.image_shape
        self._sizes = _sizes(config, (height, width))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None
        side = len(self._tower.grid.places())
        rows = [(height * side, width * side + 1) for height, width in self._grids()]
        most = self._tower.grid.tokens + max(height * width for height, width in rows)
        media = replace(traits.media, any_size=True, tiles=True, most_tokens=most)
        return replace(traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        if image.grid is None:
            raise ValueError(
                "an image of this model has a size: give (tiles, (1, height, width)), in pixels"
                " before it was resized"
            )
        time, *size = image.grid
        if time != 1 or min(size) < 1:
            raise ValueError(f"the size of an image must be 1 and two numbers, got {image.grid}")
        height, width = size
        grid = self._grids()[_best(self._sizes, (height, width))]
        expected = (1 + grid[0] * grid[1], *self._tower.grid.image_shape)
        if image.values.shape != expected:
            raise ValueError(
                f"an image of {width} x {height} pixels must be {list(expected)}, got"
                f" {list(image.values.shape)}"
            )
        rows = np.concatenate([self._tower.grid.patches(tile) for tile in image.values])
        return self._placed(rows, self._picture(grid, (height, width)))

    def row_end(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        width = self._text.traits.hidden_size
        newline = self._parts(weights).vectors(("image_newline",), width, table=True)
        return ops.embedding(inputs.positions, newline, outside=0)

    def _grids(self) -> list[Size]:
        """Rows and columns of tiles of each size."""
        _, tile_height, tile_width = self._tower.grid.image_shape
        return [(height // tile_height, width // tile_width) for height, width in self._sizes]

    def _picture(self, grid: Size, size: Size) -> np.ndarray:
        """The numbers of embeddings [rows, columns] of an image of `size` pixels in a `grid` of
        tiles, without its margins."""
        places, (rows, columns) = self._tower.grid.places(), grid
        side = len(places)
        first = places.size * (1 + np.arange(rows * columns, dtype=np.int32))
        tiles = first.reshape(rows, 1, columns, 1) + places[:, None]
        return _without_margins(tiles.reshape(rows * side, columns * side), size)

    def _placed(self, rows: np.ndarray, picture: np.ndarray) -> MediaFeatures:
        """The features `rows` of all tiles, for the tokens of the whole image and of `picture`."""
        lines = np.pad(picture, ((0, 0), (0, 1)), constant_values=ROW_END)
        placement = np.concatenate([self._tower.grid.places().reshape(-1), lines.reshape(-1)])
        return MediaFeatures(rows, len(placement), placement=placement)


def _sizes(config: Config, tile: Size) -> list[Size]:
    """Those that images are made to fit, multiples of a tile's."""
    key = "image_grid_pinpoints"
    listed = as_list(config.get(key, _DEFAULT_SIZES)) or []
    sizes: list[Size] = []
    for entry in listed[: _MAX_SIZES + 1]:
        sides = as_list(entry) or []
        if len(sides) != 2 or not all(
            type(side) is int and side >= own and side % own == 0
            for side, own in zip(sides, tile, strict=True)
        ):
            raise ModelConfigError(
                f"{key} has {shown(entry)}; each must be a height and a width of whole tiles of"
                f" {tile[0]} x {tile[1]} pixels"
            )
        sizes.append((sides[0], sides[1]))
    most = max((height * width for height, width in sizes), default=0)
    if not 0 < len(sizes) <= _MAX_SIZES or most > _MAX_TILES * tile[0] * tile[1]:
        raise ModelConfigError(
            f"{key} must list 1 to {_MAX_SIZES} sizes, of at most {_MAX_TILES} tiles each"
        )
    return sizes


def _best(sizes: Sequence[Size], image: Size) -> int:
    """The number of the size in which most of the image's pixels are kept; of equally good ones
    the smallest."""

    def kept(size: Size) -> int:
        scale = min(size[1] / image[1], size[0] / image[0])
        return min(int(image[1] * scale) * int(image[0] * scale), image[0] * image[1])

    order = [(-kept(size), size[0] * size[1], number) for number, size in enumerate(sizes)]
    return min(order)[2]


def _without_margins(picture: np.ndarray, image: Size) -> np.ndarray:
    """The part [rows, columns] of a picture of patches that an image of these sides in pixels
    takes, if it keeps its shape: there are margins at two sides."""
    rows, columns = picture.shape
    height, width = image
    if width / height > columns / rows:
        margin = (rows - int(round(height * (columns / width), 7))) // 2
        return picture[margin : rows - margin]
    margin = (columns - int(round(width * (rows / height), 7))) // 2
    return picture[:, margin : columns - margin]
