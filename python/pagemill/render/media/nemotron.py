"""Images of any size as patches, about as many as they have pixels for, for Nemotron 3 Omni."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.patches import check_group, cut_patches
from pagemill.render.media.pixels import Colors, check_aspect, positive, resampling
from pagemill.render.media.tiles import MAX_SIDE

_MAX_MERGE = 8
_LEARNED = 10  # class and register tokens, which the tower reads behind the patches of an image


@dataclass(frozen=True, slots=True)
class NemotronOmniProcessor:
    """Resizes to whole squares of `merge` x `merge` patches, about as many patches as the image
    has, from `least` to `most`. Patches are in rows."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    merge: int
    least: int
    most: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> NemotronOmniProcessor:
        """Reads the settings; an image, and what the tower reads behind it, become no larger than
        `max_tokens`."""
        patch = positive(settings.get("patch_size", 16))
        ratio = float(settings.get("downsample_ratio", 0.5))
        if not 1 / _MAX_MERGE <= ratio <= 1:
            raise ValueError(f"downsample_ratio is {ratio:g}, not from 1 / {_MAX_MERGE} to 1")
        merge = round(1 / ratio)
        check_group(patch, merge, 1)
        least = positive(settings.get("min_num_patches", 1024))
        most = positive(settings.get("max_num_patches", 13312))
        if most * patch**2 > MAX_SIDE**2 or least > most:
            raise ValueError(
                f"min_num_patches is {least} and max_num_patches {most}, of {patch} x {patch}"
                f" pixels; the most must be no less, and have {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        # Older names of the colors.
        named = {
            new: settings[old]
            for new, old in (("image_mean", "norm_mean"), ("image_std", "norm_std"))
            if old in settings
        }
        room = max_tokens - math.ceil(_LEARNED / merge**2)
        most = min(most, max(1, room) * merge**2)
        return cls(
            Colors.of({**settings, **named}),
            resampling(settings, Image.Resampling.BICUBIC),
            patch,
            merge,
            min(least, most),
            most,
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        rows, columns = self._grid(image.height, image.width)
        size = columns * self.patch, rows * self.patch
        pixels = self.colors(image.resize(size, self.resample))
        return cut_patches(pixels[None], self.patch, 1)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches. Of the two the rows become whole squares first. The longer
        side of a thin image is cut short where it would have too many."""
        rows, columns = (round(side / self.patch + 0.5) for side in (height, width))
        factor = min(math.sqrt(self.most / (rows * columns)), 1.0)
        rows, columns = math.floor(factor * rows), math.floor(factor * columns)
        if self.most > self.least > rows * columns:
            factor = math.sqrt(self.least / max(1, rows * columns))
            rows, columns = math.ceil(factor * rows), math.ceil(factor * columns)
        rows = self._whole(rows, columns)
        columns = self._whole(columns, rows)
        longest = self.most // min(rows, columns) // self.merge * self.merge
        return min(rows, max(longest, self.merge)), min(columns, max(longest, self.merge))

    def _whole(self, side: int, other: int) -> int:
        """A side in whole squares: more of them, if they fit beside the `other` side."""
        rest = side % self.merge
        if not rest and side:
            return side
        more = side + self.merge - rest
        return more if more * other <= self.most else max(self.merge, side - rest)
