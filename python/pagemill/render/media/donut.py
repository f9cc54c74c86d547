"""Pages for Donut: as large as fits its size, in the middle of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.json_values import as_array
from pagemill.render.media.pixels import (
    HALF,
    Colors,
    check_aspect,
    resampling,
    short_side_resized,
    sides,
)
from pagemill.render.media.tiles import MAX_SIDE


@dataclass(frozen=True, slots=True)
class DonutProcessor:
    """Resizes an image twice, so that its shorter side has as many pixels as that of `size`, and
    then so that it fits, and puts it into the middle of black. One that lies on its side is turned
    first, clockwise, if `is_aligned`."""

    colors: Colors
    resample: Image.Resampling
    size: tuple[int, int]
    """Height and width."""
    is_aligned: bool

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> DonutProcessor:
        """Reads the settings; all images have the same number of tokens. A list is a width and a
        height."""
        del max_tokens
        stated = settings.get("size", {"height": 2560, "width": 1920})
        listed = as_array(stated)
        height, width = sides(stated if listed is None else listed[::-1])
        flags = ("do_resize", "do_thumbnail", "do_pad")
        if not all(settings.get(flag, True) for flag in flags) or height * width > MAX_SIDE**2:
            raise ValueError(
                f"{', '.join(flags)} must be true, and size at most {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BILINEAR),
            (height, width),
            bool(settings.get("do_align_long_axis", False)),
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        check_aspect(image)
        height, width = self.size
        lies = (image.width - image.height) * (width - height) < 0
        if self.is_aligned and lies:
            image = image.transpose(Image.Transpose.ROTATE_270)
        image = self._fitted(short_side_resized(image, min(self.size), self.resample))
        page = Image.new("RGB", (width, height))
        page.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
        return self.colors(page)

    def _fitted(self, image: Image.Image) -> Image.Image:
        """The image if it fits, or else the largest one of its shape that does."""
        height, width = (min(pair) for pair in zip(image.size[::-1], self.size, strict=True))
        if (width, height) == image.size:
            return image
        if image.height > image.width:
            width = image.width * height // image.height
        elif image.width > image.height:
            height = image.height * width // image.width
        return image.resize((max(1, width), max(1, height)), self.resample)
