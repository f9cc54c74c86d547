"""Images of any size as patches, as many as a model was made for, for SigLIP 2 (NaFlex)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling
from pagemill.render.media.tiles import MAX_SIDE

_PRECISION, _LARGEST = 1e-5, 100.0
"""Of the scale of an image."""


@dataclass(frozen=True, slots=True)
class Siglip2Processor:
    """Resizes to whole patches of `patch` pixels by the largest scale with which an image has at
    most `most` of them: its sides, scaled, are rounded up. A patch has its colors pixel by pixel;
    patches come row by row."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    most: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Siglip2Processor:
        """Reads the settings; an image has no more patches than `max_tokens`."""
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        patch = positive(settings.get("patch_size", 16))
        most = positive(settings.get("max_num_patches", 256))
        if most * patch**2 > MAX_SIDE**2:
            raise ValueError(
                f"max_num_patches is {most}, of {patch} x {patch} pixels; they may have {MAX_SIDE}"
                f" x {MAX_SIDE}"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BILINEAR),
            patch,
            min(most, max(1, max_tokens)),
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        rows, columns = self._grid(image.height, image.width)
        patch = self.patch
        pixels = self.colors(image.resize((columns * patch, rows * patch), self.resample))
        cut = pixels.reshape(3, rows, patch, columns, patch).transpose(1, 3, 2, 4, 0)
        return cut.reshape(rows * columns, -1), (1, rows, columns)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches, by halving the range of scales."""

        def scaled(scale: float) -> tuple[int, int]:
            rows, columns = (
                max(1, math.ceil(side * scale / self.patch)) for side in (height, width)
            )
            return rows, columns

        least, most = _PRECISION / 10, _LARGEST
        while most - least >= _PRECISION:
            middle = (least + most) / 2
            if math.prod(scaled(middle)) <= self.most:
                least = middle
            else:
                most = middle
        return scaled(least)
