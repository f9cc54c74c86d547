"""Tiles of InternVL's own code: those of the processor of `transformers`, by a model's keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from pagemill.render.errors import RenderError
from pagemill.render.media.processors import ImageProcessor, open_processor

MODEL: dict[str, Any] = {
    "model_type": "internvl_chat",
    "force_image_size": 16,
    "dynamic_image_size": True,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 6,
    "use_thumbnail": True,
}
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def opened(folder: Path, overrides: dict[str, Any] | None = None, **changes: Any) -> ImageProcessor:
    (folder / "config.json").write_text(json.dumps(MODEL | changes))
    return open_processor(folder, 1000, overrides)


def picture(width: int, height: int) -> Image.Image:
    """Noise."""
    values = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize("size", [(16, 16), (40, 30), (90, 20), (17, 70), (9, 11), (64, 64)])
@pytest.mark.parametrize("least", [1, 2])
def test_tiles(size: tuple[int, int], least: int, tmp_path: Path) -> None:
    image = picture(*size)
    expected = GotOcr2ImageProcessorPil(
        crop_to_patches=True,
        size={"height": 16, "width": 16},
        min_patches=least,
        max_patches=6,
        image_mean=_MEAN,
        image_std=_STD,
    )(image, return_tensors="np")["pixel_values"]
    found = opened(tmp_path, min_dynamic_patch=least)(image)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_settings_of_the_model(tmp_path: Path) -> None:
    """Whatever the file of a processor says; those that are given have the last word."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 448}))
    assert np.shape(opened(tmp_path)(picture(64, 16))) == (5, 3, 16, 16)
    assert np.shape(opened(tmp_path, dynamic_image_size=False)(picture(64, 16))) == (1, 3, 16, 16)
    fewer = opened(tmp_path, {"max_dynamic_patch": 2})
    assert np.shape(fewer(picture(64, 16))) == (3, 3, 16, 16)


@pytest.mark.parametrize("forced", [{"force_image_size": None}, {}])
def test_a_size_of_the_tower_alone(forced: dict[str, Any], tmp_path: Path) -> None:
    others = {key: value for key, value in MODEL.items() if key != "force_image_size"}
    config = others | forced | {"vision_config": {"image_size": 8}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert np.shape(open_processor(tmp_path, 1000)(picture(8, 8))) == (1, 3, 8, 8)


def test_a_type_that_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="has no preprocessor_config.json"):
        opened(tmp_path, model_type=["internvl_chat"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_thumbnail": False}, "use_thumbnail true"),
        ({"pad2square": True}, "pad2square must be false"),
        ({"max_dynamic_patch": 65}, "max_patches 65"),
        ({"force_image_size": "a"}, "not a positive number"),
    ],
)
def test_refused_settings(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=message):
        opened(tmp_path, **changes)
