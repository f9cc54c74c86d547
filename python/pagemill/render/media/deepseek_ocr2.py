"""Images of DeepSeek-OCR: the whole in a square, and tiles of another size in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.json_values import as_array
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling, sides
from pagemill.render.media.tiles import MAX_SIDE, all_grids, cut_tiles, most_alike

_GRAY = (127, 127, 127)
_MAX_TILES = 64


@dataclass(frozen=True, slots=True)
class DeepseekOcr2Processor:
    """Resizes so that the longer side has `edge` pixels, and puts the image into the middle of a
    square of one color. One with a side of more than `tile` pixels is also resized to the number of
    rows and columns of tiles, from `least` to `most` in all, whose shape is most like its own."""

    colors: Colors
    resample: Image.Resampling
    edge: int
    tile: int
    least: int
    most: int
    margin: tuple[int, ...]
    """Red, green and blue around the image."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> DeepseekOcr2Processor:
        """Reads the settings; all whole images, and all tiles, have the same number of tokens."""
        del max_tokens
        height, edge = sides(settings.get("size", 1024))
        tile = positive(settings.get("tile_size", 768))
        least, most = (
            positive(settings.get(f"{bound}_patches", default))
            for bound, default in (("min", 2), ("max", 6))
        )
        if not settings.get("crop_to_patches", True) or height != edge:
            raise ValueError("size must be a square, and crop_to_patches true")
        if not least <= most <= _MAX_TILES or max(edge**2, most * tile**2) > MAX_SIDE**2:
            raise ValueError(
                f"size is {edge}, tile_size {tile}, min_patches {least} and max_patches {most}; the"
                f" most must be from the least to {_MAX_TILES}, and a whole image, or all tiles,"
                f" may have {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        margin = as_array(settings.get("background_color", _GRAY)) or []
        if len(margin) != len(_GRAY) or not all(
            type(each) is int and 0 <= each < 256 for each in margin
        ):
            raise ValueError("background_color must be three numbers from 0 to 255")
        colors = Colors.of(settings, HALF, HALF)
        resample = resampling(settings, Image.Resampling.BICUBIC)
        return cls(colors, resample, edge, tile, least, most, tuple(margin))

    @classmethod
    def first(cls, settings: Mapping[str, Any], max_tokens: int) -> DeepseekOcr2Processor:
        """As `of`, of the first DeepSeek-OCR, whose own code cuts images."""
        return cls.of({"tile_size": 640, "max_patches": 9, **settings}, max_tokens)

    def __call__(self, image: Image.Image) -> np.ndarray | tuple[np.ndarray, tuple[int, int, int]]:
        """The whole, f32 [3, edge, edge]; or the pixels of the tiles and of the whole, f32, one
        array after the other, and (1, rows, columns) of the tiles."""
        check_aspect(image)
        scale = self.edge / max(image.size)
        width, height = (max(round(side * scale), 1) for side in image.size)
        square = Image.new("RGB", (self.edge, self.edge), self.margin)
        corner = (self.edge - width) // 2, (self.edge - height) // 2
        square.paste(image.resize((width, height), self.resample), corner)
        whole = self.colors(square)
        if max(image.size) <= self.tile:
            return whole
        size, tile = (image.height, image.width), (self.tile, self.tile)
        rows, columns = most_alike(size, tile, all_grids(self.least, self.most))
        resized = image.resize((columns * self.tile, rows * self.tile), self.resample)
        tiles = [self.colors(each).reshape(-1) for each in cut_tiles(resized, tile)]
        return np.concatenate([*tiles, whole.reshape(-1)]), (1, rows, columns)
