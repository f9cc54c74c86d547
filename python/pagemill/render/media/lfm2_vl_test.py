"""Images in tiles of patches, with the whole image at a size of its own, as LFM2-VL's processor in
`transformers` makes them, which needs torchvision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.media.processors import open_processor
from pagemill.render.testing.pictures import picture

PATCH, UNIT, TILE = 4, 8, 32
LFM2_VL: dict[str, Any] = {
    "image_processor_type": "Lfm2VlImageProcessorFast",
    "encoder_patch_size": PATCH,
    "min_image_tokens": 4,
    "max_image_tokens": 16,
    "tile_size": TILE,
}


def processor(folder: Path, max_tokens: int = 10**6, **overrides: Any):
    """What opens the settings."""
    (folder / "preprocessor_config.json").write_text(json.dumps(LFM2_VL | overrides))
    return open_processor(folder, max_tokens)


def patches_of(image: Image.Image, width: int, height: int) -> np.ndarray:
    """The image resized to this size, patch by patch, and in it pixel by pixel."""
    pixels = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    cut = [
        pixels[top : top + PATCH, left : left + PATCH].reshape(-1)
        for top in range(0, height, PATCH)
        for left in range(0, width, PATCH)
    ]
    return np.stack(cut) / 127.5 - 1


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((24, 16), (24, 16)),
        ((29, 19), (32, 16)),
        ((7, 7), (16, 16)),  # 4 tokens at least
        ((43, 43), (32, 32)),  # 16 at most
        ((60, 20), (64, 16)),
        ((10, 3), (32, 16)),  # rounded up
    ],
)
def test_small_images_are_whole(
    tmp_path: Path, size: tuple[int, int], resized: tuple[int, int]
) -> None:
    image = picture(*size)
    patches, grid = processor(tmp_path)(image)
    assert grid == (1, resized[1] // PATCH, resized[0] // PATCH) and patches.dtype == np.float32
    np.testing.assert_allclose(patches, patches_of(image, *resized), atol=1e-6)


@pytest.mark.parametrize(
    ("size", "tiles", "whole"),
    [
        ((100, 50), (4, 2), (40, 16)),  # more than half of 8 tiles, as like as 2
        ((40, 80), (1, 2), (16, 40)),
        ((300, 200), (3, 2), (32, 24)),
        ((900, 100), (9, 1), (96, 8)),
    ],
)
def test_large_images_are_cut(
    tmp_path: Path, size: tuple[int, int], tiles: tuple[int, int], whole: tuple[int, int]
) -> None:
    image, (columns, rows) = picture(*size), tiles
    values, grid = processor(tmp_path)(image)
    assert grid == (rows, whole[1] // PATCH, whole[0] // PATCH)
    assert values.shape == (rows * columns + 1, (TILE // PATCH) ** 2, 3 * PATCH**2)
    expected = patches_of(image, *whole)
    np.testing.assert_allclose(values[-1][: len(expected)], expected, atol=1e-6)
    assert not values[-1][len(expected) :].any()
    enlarged = image.resize((columns * TILE, rows * TILE), Image.Resampling.BILINEAR)
    for number, tile in enumerate(values[:-1]):
        row, column = divmod(number, columns)
        left, top = column * TILE, row * TILE
        own = enlarged.crop((left, top, left + TILE, top + TILE))
        np.testing.assert_allclose(tile, patches_of(own, TILE, TILE), atol=1e-6)


def test_a_tolerance_says_which_images_are_large(tmp_path: Path) -> None:
    image = picture(48, 40)  # 30 tokens, of which the most are 16
    assert processor(tmp_path)(image)[0].ndim == 2
    assert processor(tmp_path, max_pixels_tolerance=1.8)(image)[0].ndim == 3
    assert processor(tmp_path, do_image_splitting=False)(picture(300, 200))[0].ndim == 2
    few = processor(tmp_path, min_tiles=1, max_tiles=1)
    assert few(picture(300, 200))[0].ndim == 2


def test_images_fit_the_engine(tmp_path: Path) -> None:
    for size in ((300, 200), (900, 5), (5, 900), (7, 7)):
        patches, (_, height, width) = processor(tmp_path, max_tokens=5)(picture(*size))
        assert len(patches) == height * width <= 5 * 4, "tiles of 16 tokens do not fit"
    values, _ = processor(tmp_path, max_tokens=16)(picture(300, 200))
    assert len(values) == 7


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"use_thumbnail": False}, "use_thumbnail must be true"),
        ({"min_image_tokens": 17}, "min_image_tokens is 17 and max_image_tokens 16"),
        ({"max_image_tokens": 10**6}, "4096 x 4096 pixels"),
        ({"max_image_tokens": 17}, "at most those of a tile"),
        ({"min_tiles": 11}, "min_tiles is 11, max_tiles 10"),
        ({"max_tiles": 65}, "from the least to 64"),
        ({"tile_size": 36}, "whole squares of 8 pixels"),
        ({"tile_size": 4096}, "4096 x 4096 pixels"),
        ({"encoder_patch_size": 0}, "not a positive number"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, **settings)


def test_long_thin_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="200 times"):
        processor(tmp_path)(picture(201, 1))
