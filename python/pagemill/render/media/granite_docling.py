"""Pages divided into tiles for Granite Docling: large ones of some shapes into more of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.pixels import check_aspect, positive
from pagemill.render.media.tiles import GridProcessor, Tiles

_MAX_SIDE = 16  # tiles in a row or a column, for which its vocabulary has texts


@dataclass(frozen=True, slots=True)
class GraniteDoclingProcessor:
    """Cuts into tiles as `pages` does. If there are several, the whole page is the last one."""

    pages: GridProcessor
    dense: GridProcessor | None
    """Of pages that would become smaller than `max_scale`, if it is not 0, and whose width over
    height is above `min_aspect` and, if it is not 0, at most `max_aspect`."""
    max_scale: float
    min_aspect: float
    max_aspect: float

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> GraniteDoclingProcessor:
        """Reads the settings; all tiles have the same number of tokens."""
        del max_tokens
        if settings.get("fine_route"):
            raise ValueError("fine_route must be false")
        most = 1
        if settings.get("crop_to_patches", True):
            most = positive(settings.get("max_patches", 32))
        scale, least, longest = (
            float(settings.get(f"dense_{name}", 0))
            for name in ("max_scale", "min_aspect", "max_aspect")
        )
        more = settings.get("dense_max_patches", 0)
        dense = None
        if most > 1 and more and (scale > 0 or least > 0):
            dense = GridProcessor.of_sides(settings, positive(more), _MAX_SIDE)
        pages = GridProcessor.of_sides(settings, most, _MAX_SIDE)
        return cls(pages, dense, scale, least, longest)

    def __call__(self, image: Image.Image) -> np.ndarray | Tiles:
        check_aspect(image)
        processor = self._processor(image)
        rows, columns = processor.grid((image.height, image.width))
        tiles = processor.cut(image, (rows, columns))
        return (tiles, (1, rows, columns)) if len(tiles) > 1 else tiles[0]

    def _processor(self, image: Image.Image) -> GridProcessor:
        aspect = image.width / image.height
        if self.dense is None or aspect <= self.min_aspect:
            return self.pages
        if 0 < self.max_aspect < aspect:
            return self.pages
        _, columns = self.pages.grid((image.height, image.width))
        scale = columns * self.pages.tile[1] / image.width
        return self.pages if 0 < self.max_scale <= scale else self.dense
