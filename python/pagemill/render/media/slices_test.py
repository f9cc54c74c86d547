"""Images with slices, as the processors of `transformers` make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.render.errors import RenderError
from pagemill.render.media.processors import open_processor
from pagemill.render.media.video_processors import MAX_VIDEO_PIXELS, open_video_processor
from pagemill.render.testing.pictures import picture

PATCH = 4
MINICPM_V: dict[str, Any] = {
    "image_processor_type": "MiniCPMV4_6ImageProcessor",
    "scale_resolution": 48,
    "patch_size": PATCH,
}


def processor(folder: Path, max_tokens: int = 10**6, **changes: Any):
    """What opens the settings."""
    (folder / "preprocessor_config.json").write_text(json.dumps(MINICPM_V | changes))
    return open_processor(folder, max_tokens)


def parts(prepared: tuple[np.ndarray, tuple[int, int, int]]) -> list[tuple[np.ndarray, list[int]]]:
    """Patches of the whole image, and of its slices, each with its height and width."""
    values, (rows, height, width) = prepared
    if values.ndim == 2:
        assert rows == 1
        return [(values, [height, width])]
    blocks, *size, channels = values.shape
    count = blocks - -(-height * width // (size[0] * size[1]))
    rest = values[count:].reshape(-1, channels)
    assert not rest[height * width :].any() and count % rows == 0
    slices = [(block.reshape(-1, channels), size) for block in values[:count]]
    return [(rest[: height * width], [height, width]), *slices]


@pytest.mark.parametrize(
    "size",
    [(40, 24), (48, 48), (49, 48), (33, 100), (5, 3), (1, 1), (300, 20), (170, 130), (7, 110)],
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"downsample_mode": "4x", "max_slice_nums": 4},
        {"slice_mode": False, "resample": 2},
        {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2] * 3, "scale_resolution": 64},
        {"image_processor_type": "MiniCPMOcrImageProcessor"},
    ],
)
def test_slices_are_those_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessorPil,
    )

    image = picture(*size)
    mine = processor(tmp_path, **changes)(image)
    is_ocr = "Ocr" in changes.get("image_processor_type", "")
    settings = MINICPM_V | ({"downsample_mode": "4x"} if is_ocr else {}) | changes
    settings.pop("image_processor_type")
    theirs = MiniCPMV4_6ImageProcessorPil(**settings)(image, return_tensors="np")
    packed = theirs["pixel_values"][0].reshape(3, PATCH, -1, PATCH).transpose(2, 0, 1, 3)
    own = parts(mine)
    np.testing.assert_array_equal([shape for _, shape in own], theirs["target_sizes"])
    patches = np.concatenate([each for each, _ in own])
    assert patches.dtype == np.float32
    np.testing.assert_allclose(patches, packed.reshape(len(packed), -1), rtol=1e-5, atol=1e-5)
    rows, columns = theirs["grids"][0]
    assert len(own) - 1 == rows * columns and mine[1][0] == max(rows, 1)


IDEFICS2: dict[str, Any] = {
    "image_processor_type": "Idefics2ImageProcessor",
    "size": {"shortest_edge": 18, "longest_edge": 40},
    "patch_size": PATCH,
}


@pytest.mark.parametrize(
    "size", [(40, 24), (24, 40), (16, 16), (4, 6), (2, 2), (300, 20), (50, 40), (20, 80)]
)
@pytest.mark.parametrize(
    "changes", [{}, {"do_image_splitting": True}, {"resample": 3, "image_std": [0.2] * 3}]
)
def test_quarters_are_those_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.idefics2.image_processing_pil_idefics2 import (
        Idefics2ImageProcessorPil,
    )

    image = picture(*size)
    settings = IDEFICS2 | changes
    own = parts(processor(tmp_path, **settings)(image))
    settings.pop("image_processor_type")
    settings.pop("patch_size")
    theirs = Idefics2ImageProcessorPil(**settings)([[image]], return_tensors="np")
    pixels, masks = theirs["pixel_values"][0], theirs["pixel_attention_mask"][0]
    assert len(own) == len(pixels)
    # The whole image comes last there.
    for (patches, shape), expected, mask in zip([*own[1:], own[0]], pixels, masks, strict=True):
        rows, columns = mask[:, 0].sum() // PATCH, mask[0].sum() // PATCH
        assert shape == [rows, columns]
        expected = expected[:, : rows * PATCH, : columns * PATCH]
        cut = expected.reshape(3, rows, PATCH, columns, PATCH).transpose(1, 3, 0, 2, 4)
        np.testing.assert_allclose(patches, cut.reshape(len(patches), -1), rtol=1e-5, atol=1e-5)


def test_quarters_have_one_size(tmp_path: Path) -> None:
    image = picture(99, 83)
    settings = IDEFICS2 | {"do_image_splitting": True}
    values, grid = processor(tmp_path, **settings)(image)
    assert values.shape == (5, 8, 10, 3 * PATCH**2) and grid == (2, 8, 10)
    assert processor(tmp_path, **settings)(picture(1, 9))[0].ndim == 2


def test_small_images_may_stay_small(tmp_path: Path) -> None:
    settings = {"image_processor_type": "MiniCPMOcrImageProcessor", "small_image_upsize": "never"}
    values, grid = processor(tmp_path, **settings)(picture(17, 9))
    assert grid == (1, 2, 4) and len(values) == 8


def test_images_fit_the_engine(tmp_path: Path) -> None:
    for size in ((300, 200), (900, 5), (5, 900), (7, 7)):
        prepared = processor(tmp_path, max_tokens=20)(picture(*size))
        assert [len(each) <= 20 * 4 for each, _ in parts(prepared)] == [True], "no slices"
    assert len(parts(processor(tmp_path, max_tokens=40)(picture(300, 200)))) == 9


@pytest.mark.parametrize(("kind", "mode"), [("MiniCPMV4_6", "16x"), ("MiniCPMOcr", "4x")])
def test_frames_are_images_without_slices(tmp_path: Path, kind: str, mode: str) -> None:
    settings = {**MINICPM_V, "video_processor_type": f"{kind}VideoProcessor"}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(settings))
    frames = [picture(170, 130), picture(170, 130).rotate(180)]
    patches, (count, *shape) = open_video_processor(tmp_path, 10**6)(frames, 2)
    alone = processor(tmp_path, slice_mode=False, downsample_mode=mode)
    expected = [alone(frame) for frame in frames]
    assert count == 2 and all(grid == (1, *shape) for _, grid in expected)
    np.testing.assert_array_equal(patches, np.concatenate([each for each, _ in expected]))


def test_many_frames_are_small(tmp_path: Path) -> None:
    settings = {**MINICPM_V, "video_processor_type": "MiniCPMV4_6VideoProcessor"}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(settings))
    read = open_video_processor(tmp_path, 10**6)
    for count in (2, 8000, 10**9):
        _, (frames, rows, columns) = read([picture(170, 130)], count)
        fits = count * rows * columns * PATCH**2 <= MAX_VIDEO_PIXELS
        assert frames == 1 and (fits or rows == columns == 4)
    _, (_, rows, columns) = open_video_processor(tmp_path, 20)([picture(170, 130)], 1)
    assert rows * columns <= 20 * 4
    with pytest.raises(RenderError, match="it has no frames"):
        read([], 1)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"do_resize": False}, "do_resize must be true"),
        ({"downsample_mode": "8x"}, "downsample_mode 16x or 4x"),
        ({"max_slice_nums": 65}, "64 slices"),
        ({"scale_resolution": 2048}, "4096 x 4096 pixels"),
        ({"patch_size": 0}, "not a positive number"),
        (IDEFICS2 | {"do_resize": False}, "do_resize must be true"),
        (IDEFICS2 | {"size": {"shortest_edge": 41, "longest_edge": 40}}, "shortest_edge is 41"),
        (IDEFICS2 | {"size": {"shortest_edge": 18}}, "not a positive number"),
        (IDEFICS2 | {"patch_size": 19}, "from patches of 19 pixels"),
        (
            IDEFICS2
            | {
                "size": {"shortest_edge": 18, "longest_edge": 1832},
                "do_image_splitting": True,
            },
            "pixels to 1831",
        ),
        (
            {
                "image_processor_type": "MiniCPMOcrImageProcessor",
                "small_image_upsize": "adaptive",
            },
            "known: always, never",
        ),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, **settings)


def test_long_thin_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="200 times"):
        processor(tmp_path)(picture(201, 1))
