"""Images of any size as patches, about as many as they have pixels for, for Muse Glimmer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.patches import check_group, cut_patches
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling
from pagemill.render.media.tiles import MAX_SIDE


@dataclass(frozen=True, slots=True)
class MuseGlimmerProcessor:
    """Resizes to whole squares of `merge` x `merge` patches, at most `most` squares: of the grids
    around its own size to that whose shape is most like its own. A patch spans `frames` images,
    which are all the same one, one after the other. Patches are in rows."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    merge: int
    frames: int
    most: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> MuseGlimmerProcessor:
        """Reads the settings; an image becomes no larger than `max_tokens`."""
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        patch, merge = (
            positive(settings.get(f"{name}_size", default))
            for name, default in (("patch", 14), ("merge", 2))
        )
        frames = positive(settings.get("temporal_patch_size", 2))
        check_group(patch, merge, frames)
        most = positive(settings.get("max_image_tokens", 4096))
        if frames * most * (patch * merge) ** 2 > 2 * MAX_SIDE**2:
            raise ValueError(
                f"max_image_tokens is {most}, of {patch * merge} x {patch * merge} pixels; two"
                f" images may have {MAX_SIDE} x {MAX_SIDE} each"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.LANCZOS),
            patch,
            merge,
            frames,
            min(most, max(1, max_tokens)),
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        patches, grid = self.cut(image, self.squares(image.height, image.width))
        return np.tile(patches, (1, self.frames)), grid

    def cut(
        self, image: Image.Image, squares: tuple[int, int]
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches of one image in so many rows and columns of squares, and their grid."""
        (rows, columns), side = squares, self.patch * self.merge
        pixels = self.colors(image.resize((columns * side, rows * side), self.resample))
        return cut_patches(pixels[None], self.patch, 1)

    def at_most(self, squares: int) -> MuseGlimmerProcessor:
        """See `SquareProcessor`."""
        return replace(self, most=min(self.most, squares))

    def squares(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of squares. A thin image has one row or column of them."""
        side, shape = self.patch * self.merge, height / width
        down, across = height / side, width / side
        if down * across > self.most:
            down = math.sqrt(self.most * shape)
            across = down / shape
        around = [(math.floor(length), math.ceil(length)) for length in (down, across)]
        grids = [
            (rows, columns)
            for rows, columns in itertools.product(*around)
            if min(rows, columns) > 0 and rows * columns <= self.most
        ]
        if grids:
            return min(grids, key=lambda grid: abs(grid[0] / grid[1] - shape))
        return min(max(1, round(down)), self.most), min(max(1, round(across)), self.most)
