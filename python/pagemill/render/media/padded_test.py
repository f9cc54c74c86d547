"""Images on black squares of patches, as the processor of `transformers` makes them, which needs
torchvision."""

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

PATCH, MOST_PATCHES, MOST_SIDE = 4, 64, 16
KIMI_K25: dict[str, Any] = {
    "image_processor_type": "Kimi_K25ImageProcessor",
    "size": {"max_height": MOST_SIDE, "max_width": MOST_SIDE},
    "max_patches": MOST_PATCHES,
    "patch_size": PATCH,
}
# The same in the files of Kimi K2.5 and of Kimi-VL.
PUBLISHED: dict[str, Any] = {
    "auto_map": {"AutoImageProcessor": "kimi_k25_vision_processing.KimiK25VisionProcessor"},
    "media_proc_cfg": {
        "in_patch_limit": MOST_PATCHES,
        "patch_limit_on_one_side": MOST_SIDE,
        "patch_size": PATCH,
        "merge_kernel_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "fixed_output_tokens": None,
    },
}
KIMI_VL: dict[str, Any] = {
    "image_processor_type": "KimiVLImageProcessor",
    "in_token_limit": MOST_PATCHES,
    "patch_size": PATCH,
    "merge_kernel_size": [2, 2],
    "pad_input": True,
}
ALL = [KIMI_K25, PUBLISHED, KIMI_VL]


def processor(folder: Path, settings: dict[str, Any], max_tokens: int = 10**6, **overrides: Any):
    """What opens `settings`."""
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return open_processor(folder, max_tokens, overrides)


@pytest.mark.parametrize("settings", ALL)
@pytest.mark.parametrize(
    ("size", "inner"),
    [
        ((40, 24), (40, 24)),
        ((33, 17), (33, 17)),
        ((5, 3), (5, 3)),
        ((1, 1), (1, 1)),
        ((500, 400), (35, 28)),  # 64 / (125 * 100) of the area
    ],
)
def test_an_image_is_put_on_black_squares(
    tmp_path: Path, size: tuple[int, int], inner: tuple[int, int], settings: dict[str, Any]
) -> None:
    image = picture(*size)
    patches, grid = processor(tmp_path, settings)(image)
    columns, rows = (-(-side // (2 * PATCH)) * 2 for side in inner)
    assert grid == (1, rows, columns) and patches.dtype == np.float32
    canvas = Image.new("RGB", (columns * PATCH, rows * PATCH))
    canvas.paste(image.resize(inner, Image.Resampling.BICUBIC))
    whole = np.asarray(canvas, np.float32).transpose(2, 0, 1) / 127.5 - 1
    cut = whole.reshape(3, rows, PATCH, columns, PATCH).transpose(1, 3, 0, 2, 4)
    np.testing.assert_allclose(patches, cut.reshape(rows * columns, -1), atol=1e-6)


def test_rows_of_patches_have_a_longest(tmp_path: Path) -> None:
    long = picture(300, 20)
    for settings in (KIMI_K25, PUBLISHED):
        assert processor(tmp_path, settings)(long)[1] == (1, 2, MOST_SIDE)
    many = {"in_token_limit": 10**4}
    _, (_, _, columns) = processor(tmp_path, KIMI_VL, **many)(picture(3000, 20))
    assert columns == 510, "fewer than 512 with those of padding"


@pytest.mark.parametrize("settings", ALL)
@pytest.mark.parametrize("size", [(500, 400), (90, 10), (2, 3)])
def test_images_fit_the_engine(
    tmp_path: Path, size: tuple[int, int], settings: dict[str, Any]
) -> None:
    _, (_, rows, columns) = processor(tmp_path, settings, max_tokens=5)(picture(*size))
    assert rows * columns // 4 <= 5


def test_settings_are_replaced(tmp_path: Path) -> None:
    image = picture(40, 40)
    assert processor(tmp_path, PUBLISHED)(image)[1] == (1, 8, 8)
    assert processor(tmp_path, PUBLISHED, in_patch_limit=16)(image)[1] == (1, 4, 4)
    with pytest.raises(RenderError, match="max_patches cannot be set: .* in_patch_limit"):
        processor(tmp_path, PUBLISHED, max_patches=16)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (KIMI_K25 | {"do_resize": False}, "do_resize must be true"),
        (KIMI_K25 | {"size": {"max_height": 8, "max_width": 16}}, "must be equal"),
        (KIMI_K25 | {"size": 16}, "cannot be used"),
        (KIMI_K25 | {"max_patches": 0}, "not a positive number"),
        (KIMI_VL | {"pad_input": False}, "pad_input must be true"),
        (KIMI_VL | {"merge_kernel_size": [1, 2]}, "a square of at most 8"),
        (KIMI_VL | {"merge_kernel_size": 9}, "a square of at most 8"),
        (PUBLISHED | {"media_proc_cfg": {"fixed_output_tokens": 9}}, "fixed_output_tokens"),
        ({"auto_map": {"AutoImageProcessor": "code.OtherProcessor"}}, "'OtherProcessor'; known"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, settings)


def test_long_thin_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="200 times"):
        processor(tmp_path, KIMI_K25)(picture(201, 1))


@pytest.mark.parametrize("size", [(40, 24), (24, 40), (33, 33), (490, 300), (700, 20), (3, 600)])
def test_aria_pads_to_whole_patches(tmp_path: Path, size: tuple[int, int]) -> None:
    from transformers.models.aria.image_processing_pil_aria import AriaImageProcessorPil

    image, side = picture(*size), 490 // 14
    settings = {"image_processor_type": "AriaImageProcessor", "max_image_size": 490}
    patches, (time, rows, columns) = processor(tmp_path, settings)(image)
    theirs = AriaImageProcessorPil(max_image_size=490)(image, return_tensors="np")
    mask = theirs["pixel_mask"][0].reshape(side, 14, side, 14).any((1, 3))
    assert time == 1 and (mask[:, 0].sum(), mask[0].sum()) == (rows, columns)
    cut = theirs["pixel_values"][0].reshape(3, side, 14, side, 14).transpose(1, 3, 0, 2, 4)
    expected = cut[:rows, :columns].reshape(rows * columns, -1)
    np.testing.assert_allclose(patches, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"split_image": True}, "split_image must be false"),
        ({"max_image_size": 491}, "whole patches of 14 pixels"),
        ({"min_image_size": 994}, "max_image_size is 980"),
        ({"max_image_size": 14000}, "at most 4096"),
    ],
)
def test_settings_of_aria_that_are_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, {"image_processor_type": "AriaImageProcessor"} | changes)


def test_patches_of_aria_are_those_of_its_tower(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {"patch_size": 20}}))
    patches, grid = processor(tmp_path, {"image_processor_type": "AriaImageProcessor"})(
        picture(40, 24)
    )
    assert grid == (1, 30, 49) and patches.shape == (30 * 49, 3 * 20**2)
