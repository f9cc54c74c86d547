"""Images of SigLIP 2, Muse Glimmer and Nemotron 3 Omni have the patches that `transformers` cuts,
whose processors of the last two need torchvision to resize them."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import image_processing_backends
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from pagemill.render.errors import RenderError
from pagemill.render.media.video_processors import open_video_processor
from pagemill.render.testing.pictures import picture, processor

# They import torchvision, which is not installed and which resizing alone needs.
assert image_processing_backends
_STANDINS = {
    f"torchvision{name}": MagicMock()
    for name in ("", ".transforms", ".transforms.v2", ".transforms.v2.functional")
}
with patch.dict(sys.modules, _STANDINS):
    muse_glimmer, nemotron = (
        import_module(f"transformers.models.{family}.image_processing_{family}")
        for family in ("muse_glimmer", "nemotron_h_omni")
    )
SIGLIP2 = {"image_processor_type": "Siglip2ImageProcessor"}
MUSE_GLIMMER: dict[str, Any] = {
    "image_processor_type": "MuseGlimmerImageProcessor",
    "patch_size": 4,
    "max_image_tokens": 30,
}
NEMOTRON: dict[str, Any] = {
    "image_processor_type": "NemotronH_Omni_Reasoning_V3ImageProcessor",
    "patch_size": 4,
    "min_num_patches": 16,
    "max_num_patches": 120,
}


@pytest.mark.parametrize("size", [(500, 400), (16, 16), (1, 1), (33, 47), (90, 10), (10, 199)])
@pytest.mark.parametrize("changes", [{}, {"patch_size": 4, "max_num_patches": 25}], ids=str)
def test_patches_of_siglip2(tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]) -> None:
    image = picture(*size)
    patches, grid = processor(tmp_path, **SIGLIP2, **changes)(image)
    theirs = Siglip2ImageProcessorPil(**changes)(image, return_tensors="np")
    assert grid == (1, *theirs["spatial_shapes"][0])
    expected = theirs["pixel_values"][0][theirs["pixel_attention_mask"][0] == 1]
    np.testing.assert_allclose(patches, expected, rtol=1e-5, atol=1e-5)


def _size(seed: int) -> tuple[int, int]:
    """Width and height."""
    width, height = (int(side) for side in np.random.default_rng(seed).integers(4, 120, 2))
    return width, height


@pytest.mark.parametrize("seed", range(40))
def test_sizes_of_nemotron(tmp_path: Path, seed: int) -> None:
    width, height = _size(seed)
    _, grid = processor(tmp_path, **NEMOTRON)(picture(width, height))
    assert grid == (1, *nemotron.get_patch_grid_size(height, width, 4, 2, 16, 120))


def test_numbers_of_nemotron(tmp_path: Path) -> None:
    """With the names that published files have for colors."""
    image, mean, std = picture(50, 30), [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    make = processor(tmp_path, **NEMOTRON, norm_mean=mean, norm_std=std)
    patches, (_, rows, columns) = make(image)
    resized = image.resize((columns * 4, rows * 4), Image.Resampling.BICUBIC)
    pixels = (np.asarray(resized, np.float32) / 255 - mean) / std
    cut = pixels.reshape(rows, 4, columns, 4, 3).transpose(0, 2, 4, 1, 3)
    np.testing.assert_allclose(patches, cut.reshape(rows * columns, -1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_sizes_of_muse_glimmer(tmp_path: Path, seed: int) -> None:
    """Of two that are equally like the image theirs is any."""
    width, height = _size(seed)
    _, (time, rows, columns) = processor(tmp_path, **MUSE_GLIMMER)(picture(width, height))
    expected = muse_glimmer.smart_resize(height, width, 8, 30)
    differences = [abs(y / x - height / width) for y, x in ((rows, columns), expected)]
    assert time == 1 and differences[0] == differences[1]
    assert (4 * rows, 4 * columns) == expected or abs(4 * rows - expected[0]) == 8


def test_numbers_of_muse_glimmer(tmp_path: Path) -> None:
    image = picture(50, 30)
    patches, (_, rows, columns) = processor(tmp_path, **MUSE_GLIMMER)(image)
    resized = image.resize((columns * 4, rows * 4), Image.Resampling.LANCZOS)
    pixels = torch.tensor(np.asarray(resized)).permute(2, 0, 1)[None] / 127.5 - 1
    cut = muse_glimmer.MuseGlimmerImageProcessor.patchify
    expected, *grid = cut(SimpleNamespace(), pixels, patch_size=4, temporal_patch_size=2)
    assert grid == [rows, columns]
    np.testing.assert_allclose(patches, expected[0].numpy(), atol=1e-5)


@pytest.mark.parametrize(("count", "size"), [(4, (40, 32)), (3, (40, 32)), (2, (300, 200))])
def test_frames_of_muse_glimmer(tmp_path: Path, count: int, size: tuple[int, int]) -> None:
    settings = {"video_processor_type": "MuseGlimmerVideoProcessor", "patch_size": 4}
    settings |= {"max_video_frame_tokens": 30}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(settings))
    frames = [picture(*size) for _ in range(count)]
    patches, (time, rows, columns) = open_video_processor(tmp_path, 100)(frames, count)
    assert (4 * rows, 4 * columns) == muse_glimmer.smart_resize(size[1], size[0], 8, 30)
    image, _ = processor(tmp_path, **MUSE_GLIMMER)(frames[0])
    assert time == -(-count // 2)
    np.testing.assert_array_equal(patches, np.tile(image, (time, 1)))


@pytest.mark.parametrize("size", [(500, 400), (90, 2), (2, 3), (4, 700)])
@pytest.mark.parametrize(("settings", "squares"), [(SIGLIP2, 1), (MUSE_GLIMMER, 4), (NEMOTRON, 4)])
def test_images_fit_the_engine(
    tmp_path: Path, size: tuple[int, int], settings: dict[str, Any], squares: int
) -> None:
    _, (_, rows, columns) = processor(tmp_path, 5, **settings)(picture(*size))
    assert rows * columns % squares == 0 and squares <= rows * columns <= 5 * squares


@pytest.mark.parametrize(
    ("settings", "changes", "why"),
    [
        (SIGLIP2, {"do_resize": False}, "do_resize must be true"),
        (SIGLIP2, {"max_num_patches": 10**6}, "max_num_patches is 1000000"),
        (SIGLIP2, {"patch_size": 0}, "not a positive number"),
        (MUSE_GLIMMER, {"do_resize": False}, "do_resize must be true"),
        (MUSE_GLIMMER, {"max_image_tokens": 2**21}, "4096 x 4096 each"),
        (MUSE_GLIMMER, {"patch_size": 0}, "not a positive number"),
        (NEMOTRON, {"min_num_patches": 121}, "the most must be no less"),
        (NEMOTRON, {"max_num_patches": 2**21}, "4096 x 4096 pixels"),
        (NEMOTRON, {"downsample_ratio": 0.1}, "not from 1 / 8 to 1"),
        (NEMOTRON, {"downsample_ratio": 0}, "not from 1 / 8 to 1"),
        (NEMOTRON, {"patch_size": 0}, "not a positive number"),
    ],
)
def test_settings_that_are_refused(
    tmp_path: Path, settings: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, **settings | changes)
