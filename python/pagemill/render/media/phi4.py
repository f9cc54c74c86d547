"""Images of Phi-4 multimodal: divided into tiles, with a margin at two sides, and the whole in
front of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, sides
from pagemill.render.media.tiles import MAX_SIDE, Size, all_grids, cut_tiles, most_alike

_MAX_TILES = 36  # that the model takes
_LEAST_SIDE = 10  # pixels of a resized image
_CUBIC = -0.75  # the parameter of the kernel (Keys, 1981), as torch has it
_TAPS = 4


@dataclass(frozen=True, slots=True)
class Phi4Processor:
    """Resizes to as many tiles as hold the image, or if they are more than `most`, to those whose
    shape is most like the image's. The image keeps its shape; what remains below and at the right
    is white."""

    colors: Colors
    tile: int
    patch: int
    most: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Phi4Processor:
        """Reads the settings; all tiles have the same number of tokens."""
        del max_tokens
        height, width = sides(settings.get("size", 448))
        patch = positive(settings.get("patch_size", 14))
        most = positive(settings.get("dynamic_hd", _MAX_TILES))
        if height != width or height % patch or most > _MAX_TILES:
            raise ValueError(
                f"size is {width} x {height} and dynamic_hd {most}; a tile must be a square of"
                f" whole patches, and an image may have {_MAX_TILES} of them"
            )
        if most * height * width > MAX_SIDE**2:
            raise ValueError(
                f"size is {width} x {height} and dynamic_hd {most}; all tiles of an image may have"
                f" {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        return cls(Colors.of(settings, HALF, HALF), height, patch, most)

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        """The whole and the tiles, f32 [1 + tiles, 3, height, width], and (1, height, width) of all
        tiles without the margin, in patches."""
        check_aspect(image)
        tile, patch = self.tile, self.patch
        rows, columns = self._grid(image.height, image.width)
        height, width = rows * tile, columns * tile
        by_height, by_width = height / image.height, width / image.width
        inner = (width, int(image.height * by_width))
        if by_width >= by_height:
            inner = (int(image.width * by_height), height)
        if min(inner) < _LEAST_SIDE:
            raise RenderError(f"it would become {inner[0]} x {inner[1]} pixels: it is too thin")
        canvas = Image.new("RGB", (width, height), (255, 255, 255))
        canvas.paste(image.resize(inner, Image.Resampling.BILINEAR))
        pixels = self.colors(canvas)
        down, across = _cubic(height, tile), _cubic(width, tile)
        whole = (down @ pixels @ across.T).astype(np.float32)
        tiles = [self.colors(each) for each in cut_tiles(canvas, (tile, tile))]
        margins = (height - inner[1]) // patch, (width - inner[0]) // patch
        grid = 1, height // patch - margins[0], width // patch - margins[1]
        return np.stack([whole, *tiles]), grid

    def _grid(self, height: int, width: int) -> Size:
        """Rows and columns of tiles."""
        tile = self.tile
        rows, columns = math.ceil(height / tile), math.ceil(width / tile)
        if rows * columns <= self.most:
            return rows, columns
        return most_alike((height, width), (tile, tile), all_grids(1, self.most))


def _cubic(size: int, count: int) -> np.ndarray:
    """The share of each of `size` points in a line in each of `count`, interpolated between four of
    them however many lie between two: f32 [count, size]."""
    at = (np.arange(count) + 0.5) * (size / count) - 0.5
    first = np.floor(at).astype(int)
    shares = np.zeros((count, size), np.float32)
    for tap in range(-1, _TAPS - 1):
        share = _kernel(np.abs(at - (first + tap)))
        np.add.at(shares, (np.arange(count), np.clip(first + tap, 0, size - 1)), share)
    return shares


def _kernel(distance: np.ndarray) -> np.ndarray:
    a = _CUBIC
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0)).astype(np.float32)
