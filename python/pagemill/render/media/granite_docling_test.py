"""Pages in tiles, as the processor of Granite Docling of `transformers` makes them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers.models.granite_docling.image_processing_pil_granite_docling import (
    GraniteDoclingImageProcessorPil,
)

from pagemill.render.errors import RenderError
from pagemill.render.testing.pictures import picture, processor

SETTINGS: dict[str, Any] = {
    "image_processor_type": "GraniteDoclingImageProcessor",
    "size": {"height": 8, "width": 8},
    "max_patches": 6,
}
DENSE = {"dense_max_patches": 20, "dense_max_scale": 0.6, "dense_min_aspect": 1.1}


@pytest.mark.parametrize(
    "size", [(40, 24), (24, 41), (8, 8), (64, 64), (5, 3), (300, 20), (60, 40), (20, 300)]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"min_patches": 3},
        {"crop_to_patches": False},
        {"max_patches": 32, "size": {"height": 4, "width": 4}},
        DENSE,
        DENSE | {"dense_max_aspect": 1.6},
        {"dense_max_patches": 20, "dense_min_aspect": 2.0},
        {"dense_max_patches": 20, "dense_max_scale": 0.5},
        {"dense_max_patches": 20},
    ],
)
def test_tiles_are_those_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    settings = SETTINGS | changes
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = GraniteDoclingImageProcessorPil(**settings)(image, return_tensors="np")
    tiles, grid = mine if isinstance(mine, tuple) else (mine[None], (1, 1, 1))
    assert grid == (1, theirs["rows"][0][0], theirs["cols"][0][0])
    assert tiles.dtype == np.float32
    np.testing.assert_allclose(tiles, theirs["pixel_values"][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fine_route": True}, "fine_route must be false"),
        ({"max_patches": 65}, "max_patches 65; the most must be from the least to 64"),
        (DENSE | {"dense_max_patches": 65}, "max_patches 65"),
        (DENSE | {"dense_max_patches": math.inf}, "inf is not a positive number"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RenderError, match=message):
        processor(tmp_path, **SETTINGS | changes)
