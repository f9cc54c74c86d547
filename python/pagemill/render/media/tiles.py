"""Images divided into tiles of one size, with the whole image behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.json_values import as_object
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling, sides

_MAX_SIDE = 4096
_MAX_TILES = 64


@dataclass(frozen=True, slots=True)
class Idefics3Processor:
    """Resizes so that the longer side has `longest_edge`, then so that both are multiples of
    `tile`; cuts into tiles, row by row, and resizes the whole image to one more tile."""

    colors: Colors
    resample: Image.Resampling
    longest_edge: int
    tile: int
    splits: bool
    """Without it an image is resized to one tile."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Idefics3Processor:
        """Reads the settings; all tiles have the same number of tokens."""
        del max_tokens
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        size = as_object(settings.get("size", {"longest_edge": 4 * 364})) or {}
        longest = positive(size.get("longest_edge"))
        if longest > _MAX_SIDE:
            raise ValueError(f"longest_edge is {longest}; at most {_MAX_SIDE} pixels are known")
        named = as_object(settings.get("max_image_size", {"longest_edge": 364})) or {}
        tile = positive(named.get("longest_edge"))
        if tile > _MAX_SIDE or math.ceil(longest / tile) ** 2 > _MAX_TILES:
            raise ValueError(
                f"tiles of {tile} pixels (max_image_size) for a longest_edge of {longest}: they may"
                f" have {_MAX_SIDE}, and an image {_MAX_TILES} of them"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.LANCZOS),
            longest,
            tile,
            bool(settings.get("do_image_splitting", True)),
        )

    def __call__(self, image: Image.Image) -> np.ndarray | tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        image = image.resize(_longest(image.size, self.longest_edge), self.resample)
        tile = self.tile
        if self.splits:
            image = image.resize(self._whole_tiles(image.size), self.resample)
        columns, rows = image.width // tile, image.height // tile
        if not self.splits or columns == rows == 1:
            return self.colors(image.resize((tile, tile), self.resample))
        cut = _cut(image, (tile, tile))
        cut.append(image.resize((tile, tile), self.resample))
        return np.stack([self.colors(each) for each in cut]), (1, rows, columns)

    def _whole_tiles(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height: the longer side up to the next multiple, and the other with it."""
        width, height = size
        aspect = width / height
        if width >= height:
            width = math.ceil(width / self.tile) * self.tile
            height = int(width / aspect)
        else:
            height = math.ceil(height / self.tile) * self.tile
            width = int(height * aspect)
        columns, rows = (math.ceil(side / self.tile) for side in (width, height))
        return columns * self.tile, rows * self.tile


@dataclass(frozen=True, slots=True)
class InternVlProcessor:
    """Resizes to the number of rows and columns of tiles, from `least` to `most` in all, whose
    shape is most like the image's; cuts into tiles, row by row. If there are several, the whole
    image, resized to one tile, comes behind them."""

    colors: Colors
    resample: Image.Resampling
    tile: tuple[int, int]
    """Height and width."""
    least: int
    most: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> InternVlProcessor:
        """Reads the settings; all tiles have the same number of tokens. `crop_to_patches` is not
        read: the processor of InternVL sets it."""
        del max_tokens
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        least = positive(settings.get("min_patches", 1))
        most = positive(settings.get("max_patches", 12))
        if not least <= most <= _MAX_TILES:
            raise ValueError(
                f"min_patches is {least} and max_patches {most}; the most must be from the least to"
                f" {_MAX_TILES}"
            )
        height, width = tile = sides(settings.get("size", 384))
        if max(tile) > _MAX_SIDE or most * height * width > _MAX_SIDE**2:
            raise ValueError(
                f"size is {width} x {height} and max_patches {most}; a side may have {_MAX_SIDE}"
                f" pixels, and all tiles of an image {_MAX_SIDE} x {_MAX_SIDE}"
            )
        return cls(
            Colors.of(settings),
            resampling(settings, Image.Resampling.BICUBIC),
            tile,
            least,
            most,
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        check_aspect(image)
        height, width = self.tile
        rows, columns = self._grid(image)
        whole = image.resize((columns * width, rows * height), self.resample)
        cut = _cut(whole, self.tile)
        if len(cut) > 1:
            cut.append(image.resize((width, height), self.resample))
        return np.stack([self.colors(each) for each in cut])

    def _grid(self, image: Image.Image) -> tuple[int, int]:
        """Rows and columns. Of equally good ones, of which a few tiles come first, more are taken
        if the image has more than half of their pixels."""
        aspect, area = image.width / image.height, image.width * image.height
        grids = [
            (rows, columns)
            for columns in range(1, self.most + 1)
            for rows in range(1, self.most // columns + 1)
            if rows * columns >= self.least
        ]
        best, least = (1, 1), math.inf
        for rows, columns in sorted(grids, key=math.prod):
            difference = abs(aspect - columns / rows)
            enough = area > 0.5 * math.prod(self.tile) * rows * columns
            if difference < least or (difference == least and enough):
                best, least = (rows, columns), difference
        return best


def _cut(image: Image.Image, tile: tuple[int, int]) -> list[Image.Image]:
    """Tiles of this height and width, row by row."""
    height, width = tile
    return [
        image.crop((left, top, left + width, top + height))
        for top in range(0, image.height - height + 1, height)
        for left in range(0, image.width - width + 1, width)
    ]


def _longest(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """Width and height whose longer one is `edge`; the other is made even."""
    width, height = size
    aspect = width / height
    if width >= height:
        height = int(edge / aspect)
        return edge, max(height + height % 2, 1)
    width = int(edge * aspect)
    return max(width + width % 2, 1), edge
