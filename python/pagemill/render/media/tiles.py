"""Images divided into tiles of one size, with the whole image behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.json_values import as_object
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling

_MAX_SIDE = 4096


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
        tile = as_object(settings.get("max_image_size", {"longest_edge": 364})) or {}
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.LANCZOS),
            longest,
            positive(tile.get("longest_edge")),
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
        cut = [
            image.crop((column * tile, row * tile, (column + 1) * tile, (row + 1) * tile))
            for row in range(rows)
            for column in range(columns)
        ]
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


def _longest(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """Width and height whose longer one is `edge`; the other is made even."""
    width, height = size
    aspect = width / height
    if width >= height:
        height = int(edge / aspect)
        return edge, max(height + height % 2, 1)
    width = int(edge * aspect)
    return max(width + width % 2, 1), edge
