"""Frames as patches: sizes, grids and numbers are those of the processors of `transformers`."""

from __future__ import annotations

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import torch
from pagemill.render.errors import RenderError
from pagemill.render.media import video_processors
from pagemill.render.media.video_processors import (
    FrameProcessor,
    PatchProcessor,
    VideoProcessor,
    open_video_processor,
)
from PIL import Image
from transformers import video_processing_utils
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

# They import torchvision, which is not installed and which resizing alone needs.
assert video_processing_utils
ONEVISION = "LlavaOnevisionVideoProcessor"
_STANDINS = {
    f"torchvision{name}": MagicMock()
    for name in ("", ".transforms", ".transforms.v2", ".transforms.v2.functional")
}
with patch.dict(sys.modules, _STANDINS):
    MODULES: dict[str, Any] = {
        kind: import_module(f"transformers.models.{family}.video_processing_{family}")
        for kind, family in (
            ("CohereCompassVideoProcessor", "cohere_compass"),
            ("Glm46VVideoProcessor", "glm46v"),
            ("Glm4vVideoProcessor", "glm4v"),
            ("InternVLVideoProcessor", "internvl"),
            ("LlavaNextVideoVideoProcessor", "llava_next_video"),
            (ONEVISION, "llava_onevision"),
            ("Qwen2VLVideoProcessor", "qwen2_vl"),
            ("Qwen3VLVideoProcessor", "qwen3_vl"),
        )
    }
# By the processor of images, whose settings older checkpoints have alone.
ONE_SIZE = {
    "InternVLVideoProcessor": "GotOcr2ImageProcessorFast",
    ONEVISION: "LlavaOnevisionImageProcessorFast",
}
PATCHES = sorted(MODULES.keys() - ONE_SIZE.keys() - {"LlavaNextVideoVideoProcessor"})
OMNI = (("qwen2_5_omni", "Qwen2_5OmniProcessor"), ("qwen3_omni_moe", "Qwen3OmniMoeProcessor"))
ROOMY = 10**6
SETTINGS = {"patch_size": 4, "size": {"shortest_edge": 1024, "longest_edge": 8192}}


def opened(folder: Path, kind: str, max_tokens: int = ROOMY, **settings: Any) -> VideoProcessor:
    settings = {"video_processor_type": kind} | settings
    (folder / "video_preprocessor_config.json").write_text(json.dumps(settings))
    return open_video_processor(folder, max_tokens)


def opened_patches(folder: Path, kind: str) -> PatchProcessor:
    """Without settings."""
    processor = opened(folder, kind)
    assert isinstance(processor, PatchProcessor)
    return processor


def frames(count: int, width: int, height: int) -> list[Image.Image]:
    """Noise."""
    values = np.random.default_rng(1).integers(0, 256, (count, height, width, 3), np.uint8)
    return list(map(Image.fromarray, values))


@pytest.mark.parametrize("kind", PATCHES)
def test_sizes(kind: str, tmp_path: Path) -> None:
    processor = opened(tmp_path, kind, **SETTINGS)
    module = MODULES[kind]
    random = np.random.default_rng(2)
    for _ in range(25):
        count = int(random.integers(2, 12))
        width, height = (int(side) for side in random.integers(8, 120, 2))
        bounds = {"factor": 8, "min_pixels": 1024, "max_pixels": 8192}
        if kind != "Qwen2VLVideoProcessor":
            bounds |= {"num_frames": count, "temporal_factor": 2}
        expected = module.smart_resize(height=height, width=width, **bounds)
        patches, grid = processor(frames(count, width, height), count)
        assert grid == (-(-count // 2), expected[0] // 4, expected[1] // 4)
        assert patches.shape == (np.prod(grid), 3 * 2 * 16)


@pytest.mark.parametrize("kind", PATCHES)
def test_numbers(kind: str, tmp_path: Path) -> None:
    """Of frames that need not be resized."""
    processor, cls = opened(tmp_path, kind, **SETTINGS), getattr(MODULES[kind], kind)
    images = frames(5, 40, 32)
    patches, grid = processor(images, 5)
    pixels = torch.tensor(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(n).reshape(3, 1, 1) for n in (cls.image_mean, cls.image_std))
    normalized = ((pixels / 255 - mean) / std)[None]
    expected, *sizes = cls.patchify(SimpleNamespace(), normalized, 4, 2, 2)
    assert list(grid) == sizes == [3, 8, 10]
    np.testing.assert_allclose(patches, expected.numpy()[0], atol=1e-6)


@pytest.mark.parametrize("kind", PATCHES)
def test_defaults(kind: str, tmp_path: Path) -> None:
    processor, cls = opened_patches(tmp_path, kind), getattr(MODULES[kind], kind)
    assert {"shortest_edge": processor.least, "longest_edge": processor.most} == dict(cls.size)
    assert (processor.patch, processor.merge, processor.frames) == (
        cls.patch_size,
        cls.merge_size,
        cls.temporal_patch_size,
    )
    assert processor.resample == cls.resample


@pytest.mark.parametrize("kind", PATCHES)
def test_frames_fit_a_step_and_a_prompt(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = frames(8, 200, 100)
    settings = SETTINGS | {"size": {"shortest_edge": 1024, "longest_edge": 10**7}}
    _, grid = opened(tmp_path, kind, **settings)(images, 8)
    assert grid == (4, 24, 50)
    _, grid = opened(tmp_path, kind, max_tokens=12, **settings)(images, 8)
    assert grid[0] == 4 and 20 < grid[1] * grid[2] <= 12 * 4
    monkeypatch.setattr(video_processors, "MAX_VIDEO_PIXELS", 8 * 2000)
    _, grid = opened(tmp_path, kind, **settings)(images, 8)
    assert grid[0] == 4 and 60 < grid[1] * grid[2] <= 2000 // 16


@pytest.mark.parametrize(("family", "name"), OMNI)
def test_omni_processors_have_bounds_of_their_own(family: str, name: str, tmp_path: Path) -> None:
    """Those of their files are of images."""
    settings: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessor"}
    settings |= {"processor_class": name, "min_pixels": 3136, "max_pixels": 12845056}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    processor = open_video_processor(tmp_path, ROOMY)
    assert isinstance(processor, PatchProcessor)
    module = import_module(f"transformers.models.{family}.processing_{family}")
    expected = getattr(module, name).videos_kwargs["size"]
    assert {"shortest_edge": processor.least, "longest_edge": processor.most} == expected
    bounded = open_video_processor(tmp_path, ROOMY, {"max_pixels": 5000})
    assert isinstance(bounded, PatchProcessor) and bounded.most == 5000


@pytest.mark.parametrize("kind", ONE_SIZE)
def test_frames_of_one_size(kind: str, tmp_path: Path) -> None:
    """Also by settings of images."""
    cls = getattr(MODULES[kind], kind)
    processor = opened(tmp_path, kind)
    assert isinstance(processor, FrameProcessor)
    assert dict(cls.size) == {"height": processor.size[0], "width": processor.size[1]}
    assert processor.resample == cls.resample
    (tmp_path / "video_preprocessor_config.json").unlink()
    settings: dict[str, Any] = {"image_processor_type": ONE_SIZE[kind]}
    settings |= {"size": {"height": 32, "width": 40}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    images = frames(3, 40, 32)
    found, grid = open_video_processor(tmp_path, ROOMY)(images, 5)
    pixels = np.stack([np.asarray(image) for image in images]).transpose(0, 3, 1, 2)
    mean, std = (np.reshape(n, (3, 1, 1)) for n in (cls.image_mean, cls.image_std))
    assert grid == (3, 1, 1)
    np.testing.assert_allclose(found, (pixels / 255 - mean) / std, atol=1e-6)
    assert open_video_processor(tmp_path, ROOMY)(frames(1, 90, 60), 1)[0].shape == (1, 3, 32, 40)


def test_frames_are_cropped(tmp_path: Path) -> None:
    """Of LLaVA-NeXT-Video, as its images are by CLIP's processor."""
    kind = "LlavaNextVideoVideoProcessor"
    cls = getattr(MODULES[kind], kind)
    assert cls.size["shortest_edge"] == cls.crop_size["height"] == cls.crop_size["width"]
    default = opened(tmp_path, kind)
    assert isinstance(default, FrameProcessor) and default.size == (224, 224)
    assert default.resample == cls.resample
    (tmp_path / "video_preprocessor_config.json").unlink()
    settings: dict[str, Any] = {"size": {"shortest_edge": 24}, "crop_size": 24}
    images = {"image_processor_type": "LlavaNextImageProcessor"} | settings
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    own = frames(2, 50, 40)
    found, grid = open_video_processor(tmp_path, ROOMY)(own, 2)
    expected = CLIPImageProcessorPil(**settings)(own, return_tensors="np")["pixel_values"]
    assert grid == (2, 1, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_frames_of_one_size_have_a_limit(tmp_path: Path) -> None:
    processor = opened(tmp_path, ONEVISION)
    with pytest.raises(RenderError, match=r"57 frames of 384 x 384 .* at most 56 .*num_frames"):
        processor([], 57)
    with pytest.raises(RenderError, match="no frames"):
        processor([], 56)
    with pytest.raises(RenderError, match="more than 200 times"):
        processor(frames(1, 201, 1), 1)


def test_settings_of_images_are_those_of_older_videos(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessorFast"}
    settings |= {"min_pixels": 64, "max_pixels": 256, "patch_size": 4}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert open_video_processor(tmp_path, ROOMY)(frames(2, 64, 64), 2)[1] == (1, 4, 4)
    overridden = open_video_processor(tmp_path, ROOMY, {"max_pixels": 1024, "resample": 3})
    assert overridden(frames(2, 64, 64), 2)[1] == (1, 8, 8)
    own = {"video_processor_type": "Qwen3VLVideoProcessor", "patch_size": 8}
    whole = {"video_processor": own}
    (tmp_path / "processor_config.json").write_text(json.dumps(whole))
    newer = open_video_processor(tmp_path, ROOMY)
    assert isinstance(newer, PatchProcessor) and newer.patch == 8


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("SmolVLMVideoProcessor", {}, "'SmolVLMVideoProcessor'; known: CohereCompass"),
        (ONEVISION, {"do_center_crop": True}, "do_center_crop false"),
        (ONEVISION, {"size": {"height": 1, "width": 2**24}}, "a frame may have 8388608 pixels"),
        ("LlavaNextVideoVideoProcessor", {"crop_size": 336}, "shortest_edge of a square"),
        (
            "LlavaNextVideoVideoProcessor",
            {"size": {"shortest_edge": 4096}, "crop_size": 4096},
            "a frame may have 8388608 pixels",
        ),
        ("Qwen2VLVideoProcessor", {"do_resize": False}, "do_resize must be true"),
        ("VideoLlama3VideoProcessor", {"use_token_compression": False}, "must be true"),
        ("VideoLlama3VideoProcessor", {"merge_size": 1}, "merge_size 2"),
        ("Gemma4VideoProcessor", {"max_soft_tokens": 0}, "not a positive number"),
        ("Qwen2VLVideoProcessor", {"patch_size": 0}, "not a positive number"),
        ("Qwen3VLVideoProcessor", {"size": {"longest_edge": "a"}}, "not a positive number"),
        ("Qwen3VLVideoProcessor", {"merge_size": 2**20}, "such a square may have 131072 pixels"),
        ("Qwen2VLVideoProcessor", {"temporal_patch_size": 4096}, "span 4096 images"),
        ("MiniCPMV4_6VideoProcessor", {"patch_size": 1024}, "such a square may have 131072 pixels"),
        (ONEVISION, {"image_std": [0.5, 0.5, 0]}, "image_std is 0; it must be a number from 1e-06"),
    ],
)
def test_refused_settings(kind: str, settings: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=why):
        opened(tmp_path, kind, **settings)


def test_refused_frames(tmp_path: Path) -> None:
    processor = opened(tmp_path, "Qwen2VLVideoProcessor", **SETTINGS)
    with pytest.raises(RenderError, match="no frames"):
        processor([], 1)
    with pytest.raises(RenderError, match="more than 200 times the shorter"):
        processor(frames(2, 201, 1), 2)
    patches = opened(tmp_path, "Qwen2VLVideoProcessor")
    with pytest.raises(RenderError, match=r"126 frames of 2380 x 28 pixels .* too thin"):
        patches([Image.new("RGB", (1400, 7))] * 300, 300)


@pytest.mark.parametrize(
    ("kind", "merge"), [("Gemma4VideoProcessor", 3), ("Gemma4UnifiedVideoProcessor", 1)]
)
def test_frames_of_gemma4_share_the_pixels_of_a_video(
    kind: str, merge: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = frames(4, 240, 240)
    _, grid = opened(tmp_path, kind, patch_size=4)(images, 4)
    assert grid == (4, 8 * merge, 8 * merge), "at most 70 tokens"
    _, grid = opened(tmp_path, kind, max_tokens=20, patch_size=4)(images, 4)
    assert grid == (4, 4 * merge, 4 * merge)
    monkeypatch.setattr(video_processors, "MAX_VIDEO_PIXELS", 4 * 30 * 12**2)
    processor = opened(tmp_path, kind, patch_size=4)
    patches, grid = processor(images, 4)
    assert grid == (4, 5 * merge, 5 * merge)
    assert len(patches) == math.prod(grid)
    _, grid = processor([images[0], *frames(1, 90, 300)], 4)
    assert grid == (2, 5 * merge, 5 * merge), "all have the size of the first"
    with pytest.raises(RenderError, match="no frames"):
        processor([], 4)
    (tmp_path / "video_preprocessor_config.json").unlink()
    images_alone = {"image_processor_type": kind.replace("Video", "Image"), "max_soft_tokens": 9}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images_alone | {"patch_size": 4}))
    _, grid = open_video_processor(tmp_path, ROOMY)(images, 4)
    assert grid == (4, 3 * merge, 3 * merge), "also by settings of images"
