"""Images in tiles, as the processors of `transformers` make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.render.testing.pictures import (
    COHERE2_VISION,
    IDEFICS3,
    INTERNVL,
    LLAMA4,
    LLAVA_NEXT,
    LLAVA_ONEVISION,
    picture,
    processor,
)


@pytest.mark.parametrize(
    "size", [(40, 24), (24, 40), (33, 33), (5, 3), (1, 1), (300, 20), (500, 400), (7, 110)]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"size": {"longest_edge": 50}, "image_processor_type": "SmolVLMImageProcessorFast"},
        {"size": {"longest_edge": 12}, "resample": 3},
        {"do_image_splitting": False},
        {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2] * 3},
    ],
)
def test_tiles_are_those_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.idefics3.image_processing_pil_idefics3 import (
        Idefics3ImageProcessorPil,
    )

    settings = IDEFICS3 | changes
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = Idefics3ImageProcessorPil(**settings)(
        image, return_tensors="np", return_row_col_info=True
    )
    tiles, grid = mine if isinstance(mine, tuple) else (mine[None], (1, 0, 0))
    assert grid == (1, theirs["rows"][0][0], theirs["cols"][0][0])
    assert tiles.dtype == np.float32
    np.testing.assert_allclose(tiles, theirs["pixel_values"][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "size", [(40, 24), (24, 41), (16, 16), (64, 64), (5, 3), (300, 20), (50, 40), (20, 80)]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_patches": 5, "min_patches": 3, "image_processor_type": "GotOcr2ImageProcessorFast"},
        {"size": {"height": 16, "width": 12}, "resample": 2},
        {"max_patches": 1},
    ],
)
def test_tiles_of_internvl_are_those_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    settings = INTERNVL | changes
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings |= {"crop_to_patches": True}  # as the processor of InternVL sets it
    settings.pop("image_processor_type")
    theirs = GotOcr2ImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
    assert isinstance(mine, np.ndarray) and mine.dtype == np.float32
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(40, 24), (16, 16), (5, 3)])
@pytest.mark.parametrize("crops", [{}, {"crop_to_patches": True, "max_patches": 4}], ids=str)
def test_images_of_got_ocr2_are_whole(
    tmp_path: Path, size: tuple[int, int], crops: dict[str, Any]
) -> None:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    (tmp_path / "config.json").write_text('{"model_type": "got_ocr2"}')
    settings = INTERNVL | crops
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = GotOcr2ImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((16, 16), (1, 1)),
        ((5, 3), (1, 1)),
        ((17, 16), (1, 2)),  # enlarged least by 32 / 17, to 1 x 2
        ((40, 24), (2, 3)),
        ((24, 40), (3, 2)),
        ((48, 64), (4, 3)),
        ((300, 20), (1, 12)),
        ((500, 400), (3, 4)),  # too large for all
    ],
)
def test_tiles_enlarge_an_image_of_cohere_least(
    tmp_path: Path, size: tuple[int, int], grid: tuple[int, int]
) -> None:
    image = picture(*size)
    tiles = processor(tmp_path, **COHERE2_VISION)(image)
    assert isinstance(tiles, np.ndarray) and tiles.dtype == np.float32
    rows, columns = grid
    one = {"size": {"height": rows * 16, "width": columns * 16}, "max_patches": 1}
    whole = processor(tmp_path, **(COHERE2_VISION | one))(image)[0]
    split = whole.reshape(3, rows, 16, columns, 16).transpose(1, 3, 0, 2, 4).reshape(-1, 3, 16, 16)
    assert np.array_equal(tiles[: rows * columns], split)
    assert len(tiles) == (rows * columns + 1 if rows * columns > 1 else 1)
    (last,) = processor(tmp_path, **COHERE2_VISION, crop_to_patches=False)(image)
    assert np.array_equal(tiles[-1], last)


@pytest.mark.parametrize(
    ("size", "grid", "inner"),
    [
        ((16, 16), (1, 1), (16, 16)),
        ((5, 3), (1, 1), (16, 9)),  # made as large as a tile
        ((20, 10), (1, 2), (20, 10)),  # not enlarged, though there is room
        ((33, 17), (2, 3), (33, 17)),
        ((40, 80), (3, 2), (24, 48)),  # 40 / 80 of 48: too large for all
        ((500, 400), (2, 3), (40, 32)),  # likewise
    ],
)
def test_llama4_puts_an_image_into_black_tiles(
    tmp_path: Path, size: tuple[int, int], grid: tuple[int, int], inner: tuple[int, int]
) -> None:
    image = picture(*size)
    made = processor(tmp_path, **LLAMA4)(image)
    tiles, (_, rows, columns) = made if isinstance(made, tuple) else (made[None], (1, 1, 1))
    assert (rows, columns) == grid and tiles.dtype == np.float32
    canvas = Image.new("RGB", (columns * 16, rows * 16))
    canvas.paste(image.resize(inner, Image.Resampling.BILINEAR))
    whole = np.asarray(canvas, np.float32).transpose(2, 0, 1) / 127.5 - 1
    split = whole.reshape(3, rows, 16, columns, 16).transpose(1, 3, 0, 2, 4).reshape(-1, 3, 16, 16)
    np.testing.assert_allclose(tiles[: rows * columns], split, atol=1e-6)
    if rows * columns > 1:
        last = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR), np.float32)
        assert len(tiles) == rows * columns + 1
        np.testing.assert_allclose(tiles[-1], last.transpose(2, 0, 1) / 127.5 - 1, atol=1e-6)


@pytest.mark.parametrize(
    "size", [(40, 24), (24, 41), (16, 16), (64, 64), (5, 3), (300, 20), (20, 90), (31, 33)]
)
@pytest.mark.parametrize(
    "changes", [{}, {"resample": 2, "image_grid_pinpoints": [[64, 32], [32, 48]]}]
)
def test_llava_next_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.llava_next.image_processing_pil_llava_next import (
        LlavaNextImageProcessorPil,
    )

    settings = LLAVA_NEXT | changes
    image = picture(*size)
    tiles, grid = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = LlavaNextImageProcessorPil(**settings)(image, return_tensors="np")
    assert grid == (1, *theirs["image_sizes"][0]) and tiles.dtype == np.float32
    np.testing.assert_allclose(tiles, theirs["pixel_values"][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(40, 24), (24, 41), (16, 16), (64, 64), (300, 20), (31, 33)])
def test_llava_onevision_is_that_of_transformers(tmp_path: Path, size: tuple[int, int]) -> None:
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
        LlavaOnevisionImageProcessorPil,
    )

    settings = dict(LLAVA_ONEVISION)
    image = picture(*size)
    tiles, grid = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = LlavaOnevisionImageProcessorPil(**settings)(image, return_tensors="np")
    assert grid == (1, *theirs["image_sizes"][0]) and tiles.dtype == np.float32
    np.testing.assert_allclose(tiles, theirs["pixel_values"][0], rtol=1e-5, atol=1e-5)
