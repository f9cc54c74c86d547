"""Images of DeepSeek-OCR: wholes and tiles are those of the processor of `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.render.errors import RenderError
from pagemill.render.media.processors import open_processor
from pagemill.render.testing.pictures import picture, processor

SETTINGS: dict[str, Any] = {
    "image_processor_type": "DeepseekOcr2ImageProcessorFast",
    "size": {"height": 32, "width": 32},
    "tile_size": 24,
}


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((20, 24), None),
        ((5, 3), None),
        ((40, 24), (1, 2, 3)),
        ((33, 33), (1, 2, 2)),
        ((24, 90), (1, 4, 1)),
        ((300, 20), (1, 1, 6)),
    ],
)
@pytest.mark.parametrize(
    "changes", [{}, {"max_patches": 4, "min_patches": 1, "background_color": [1, 2, 3]}], ids=str
)
def test_wholes_and_tiles_are_those_of_transformers(
    tmp_path: Path,
    size: tuple[int, int],
    grid: tuple[int, int, int] | None,
    changes: dict[str, Any],
) -> None:
    from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import (
        DeepseekOcr2ImageProcessorPil,
    )

    settings, image = SETTINGS | changes, picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = DeepseekOcr2ImageProcessorPil(**settings)(image, return_tensors="np")
    (whole,) = theirs["pixel_values"]
    if grid is None:
        assert theirs["num_local_patches"].tolist() == [0]
        np.testing.assert_allclose(mine, whole, rtol=1e-5, atol=1e-5)
        return
    assert isinstance(mine, tuple)
    if not changes:
        assert mine[1] == grid
    assert int(np.prod(mine[1])) == theirs["num_local_patches"][0]
    expected = np.concatenate([theirs["pixel_values_local"].reshape(-1), whole.reshape(-1)])
    np.testing.assert_allclose(mine[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"crop_to_patches": False}, "crop_to_patches true"),
        ({"size": {"height": 32, "width": 24}}, "size must be a square"),
        ({"max_patches": 65}, "from the least to 64"),
        ({"min_patches": 7}, "from the least to 64"),
        ({"tile_size": 4096, "max_patches": 2}, "4096 x 4096 pixels"),
        ({"background_color": [1, 2]}, "three numbers"),
        ({"background_color": [1, 2, 256]}, "from 0 to 255"),
    ],
)
def test_settings_that_are_not_known(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, **(SETTINGS | changes))


def test_the_first_model_has_no_settings_of_its_own(tmp_path: Path) -> None:
    """Its tiles are smaller, and may be more."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_vl_v2"}))
    made = open_processor(tmp_path, 4096)(picture(2400, 300))
    assert isinstance(made, tuple) and made[1] == (1, 1, 8)
    assert made[0].shape == (3 * (8 * 640**2 + 1024**2),)
    small = open_processor(tmp_path, 4096, {"tile_size": 24, "size": 32})(picture(40, 24))
    (tmp_path / "config.json").unlink()
    second = processor(tmp_path, **SETTINGS | {"max_patches": 9})(picture(40, 24))
    assert isinstance(small, tuple) and isinstance(second, tuple)
    np.testing.assert_array_equal(small[0], second[0])
