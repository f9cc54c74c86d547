"""Images of Gemma 4: as many tokens as they are allowed, whatever their size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.pixels import Colors, check_aspect, positive, resampling
from pagemill.render.media.tiles import MAX_SIDE

# Places that Gemma 4's tower has for patches in a row or a column, and Gemma 4 12B.
_GEMMA4_PLACES = 1024
_GEMMA4_UNIFIED_PLACES = 1120


@dataclass(frozen=True, slots=True)
class Gemma4Processor:
    """Resizes so that an image has as many tokens as `most_tokens` allow, keeps its shape about,
    and consists of whole squares of patches. A patch has its colors pixel by pixel; patches come
    row by row."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    merge: int
    """The side, in patches, of a square that makes a token."""
    most_tokens: int
    most_side: int
    """Squares in a row or a column."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Gemma4Processor:
        """Reads the settings; an image becomes no larger than `max_tokens`."""
        merge = positive(settings.get("pooling_kernel_size", 3))
        patch = positive(settings.get("patch_size", 16))
        return cls._of(settings, max_tokens, patch, merge, max(1, _GEMMA4_PLACES // merge))

    @classmethod
    def unified(cls, settings: Mapping[str, Any], max_tokens: int) -> Gemma4Processor:
        """As `of`, of Gemma 4 12B, whose patches are as large as squares."""
        side = positive(settings.get("patch_size", 16)) * positive(
            settings.get("pooling_kernel_size", 3)
        )
        return cls._of(settings, max_tokens, side, 1, _GEMMA4_UNIFIED_PLACES)

    @classmethod
    def _of(
        cls,
        settings: Mapping[str, Any],
        max_tokens: int,
        patch: int,
        merge: int,
        most_side: int,
    ) -> Gemma4Processor:
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        most_tokens = min(positive(settings.get("max_soft_tokens", 280)), max_tokens)
        if most_tokens * (patch * merge) ** 2 > MAX_SIDE**2:
            raise ValueError(
                f"{most_tokens} tokens of {patch * merge} x {patch * merge} pixels; an image may"
                f" have {MAX_SIDE} x {MAX_SIDE}"
            )
        normalizes = settings.get("do_normalize", False)
        plain = {"image_mean": (0.0,) * 3, "image_std": (1.0,) * 3}
        return cls(
            Colors.of({**plain, **settings} if normalizes else {**settings, "do_normalize": False}),
            resampling(settings, Image.Resampling.BICUBIC),
            patch,
            merge,
            most_tokens,
            most_side,
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        return self.cut(image, self.squares(image.height, image.width))

    def cut(
        self, image: Image.Image, squares: tuple[int, int]
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches of so many rows and columns of squares, and the grid of patches."""
        (rows, columns), side = squares, self.patch * self.merge
        pixels = self.colors(image.resize((columns * side, rows * side), self.resample))
        height, width = rows * self.merge, columns * self.merge
        cut = pixels.reshape(3, height, self.patch, width, self.patch).transpose(1, 3, 2, 4, 0)
        return cut.reshape(height * width, -1), (1, height, width)

    def at_most(self, squares: int) -> Gemma4Processor:
        """See `SquareProcessor`."""
        return replace(self, most_tokens=min(self.most_tokens, squares))

    def squares(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of squares; a thin image has one row or column of them."""
        side = self.patch * self.merge
        factor = math.sqrt(self.most_tokens * side**2 / (height * width))
        rows, columns = (math.floor(factor * length / side) for length in (height, width))
        if rows == 0:
            rows, columns = 1, min(width // height, self.most_tokens)
        elif columns == 0:
            rows, columns = min(height // width, self.most_tokens), 1
        return min(rows, self.most_side), min(columns, self.most_side)
