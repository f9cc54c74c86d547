"""Frames of ERNIE 4.5 VL: sizes, patches and the times drawn on them are those of the processor of
`transformers`."""

from __future__ import annotations

import json
import struct
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import torch
from pagemill.config import MediaConfig
from pagemill.render.errors import RenderError
from pagemill.render.media.frame_times import DrawnTimes, open_drawn_times
from pagemill.render.media.video_files import VideoFiles
from pagemill.render.media.video_processors import PatchProcessor, open_video_processor
from PIL import Image, ImageFont
from transformers import video_processing_utils

KIND = "Ernie4_5_VLMoeVideoProcessor"
SETTINGS = {"patch_size": 4, "size": {"shortest_edge": 1024, "longest_edge": 8192}}
ROOMY = 10**6


def to_image(values: torch.Tensor) -> Image.Image:
    """Of uint8 [3, height, width], as torchvision's function."""
    return Image.fromarray(values.permute(1, 2, 0).numpy())


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.tensor(np.asarray(image)).permute(2, 0, 1)


# It imports torchvision, which is not installed and which resizing alone needs.
assert video_processing_utils
_FUNCTIONAL = SimpleNamespace(to_pil_image=to_image, pil_to_tensor=to_tensor)
_STANDINS = {
    f"torchvision{name}": MagicMock()
    for name in ("", ".transforms", ".transforms.v2", ".transforms.v2.functional")
} | {"torchvision.transforms.functional": _FUNCTIONAL}
with patch.dict(sys.modules, _STANDINS):
    MODULE: Any = import_module(
        "transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe"
    )
CLASS: Any = MODULE.Ernie4_5_VLMoeVideoProcessor


def save(folder: Path, **settings: Any) -> Path:
    """The files of a processor. The font is one that Pillow has."""
    whole = {"video_processor": {"video_processor_type": KIND, "font": "font.ttf", **settings}}
    (folder / "processor_config.json").write_text(json.dumps(whole))
    (folder / "font.ttf").write_bytes(ImageFont.load_default(10).font_bytes)
    return folder


def opened(folder: Path, max_tokens: int = ROOMY, **settings: Any) -> PatchProcessor:
    processor = open_video_processor(save(folder, **settings), max_tokens)
    assert isinstance(processor, PatchProcessor)
    return processor


def frames(count: int, width: int, height: int) -> np.ndarray:
    """Noise, uint8 [count, height, width, 3]."""
    return np.random.default_rng(1).integers(0, 256, (count, height, width, 3), np.uint8)


def images(values: np.ndarray) -> list[Image.Image]:
    return [Image.fromarray(each) for each in values]


@pytest.mark.parametrize("count", [1, 4, 5])
def test_patches(count: int, tmp_path: Path) -> None:
    """Of frames that need not be resized; the last of an odd number counts twice."""
    values = frames(count, 40, 32)
    found, grid = opened(tmp_path, **SETTINGS)(images(values), count)
    mean, std = (torch.tensor(n).reshape(3, 1, 1) for n in (CLASS.image_mean, CLASS.image_std))
    stub = SimpleNamespace(rescale_and_normalize=lambda video, *_: (video / 255 - mean) / std)
    videos = CLASS._prepare_input_videos(stub, [values], "channels_last", None, [None], False)
    sizes = {"patch_size": 4, "merge_size": 2, "do_resize": False}
    batch = {"group_videos_by_shape": group, "BatchFeature": lambda data, **_: data}
    with patch.multiple(MODULE, **batch):
        expected = CLASS._preprocess(stub, videos, **sizes)
    assert list(grid) == expected["video_grid_thw"][0].tolist() == [count + count % 2, 8, 10]
    np.testing.assert_allclose(found, expected["pixel_values_videos"].numpy(), atol=1e-6)


def group(videos: list[torch.Tensor]) -> tuple[dict[Any, torch.Tensor], dict[int, Any]]:
    """Those of one video."""
    (video,) = videos
    return {video.shape: video[None]}, {0: (video.shape, 0)}


def test_sizes(tmp_path: Path) -> None:
    processor = opened(tmp_path, **SETTINGS)
    random = np.random.default_rng(2)
    for _ in range(25):
        width, height = (int(side) for side in random.integers(8, 120, 2))
        bounds = {"factor": 8, "min_pixels": 1024, "max_pixels": 8192}
        rows, columns = MODULE.smart_resize(height=height, width=width, **bounds)
        assert processor(images(frames(3, width, height)), 3)[1] == (4, rows // 4, columns // 4)


def test_defaults(tmp_path: Path) -> None:
    processor = opened(tmp_path)
    assert {"shortest_edge": processor.least, "longest_edge": processor.most} == dict(CLASS.size)
    assert (processor.patch, processor.merge) == (CLASS.patch_size, CLASS.merge_size)
    assert processor.frames == 1 and CLASS.temporal_patch_size == 2
    assert processor.resample == CLASS.resample
    with pytest.raises(RenderError, match="temporal_patch_size must be 2"):
        opened(tmp_path, temporal_patch_size=1)


def test_pairs_share_the_tokens_of_a_step(tmp_path: Path) -> None:
    settings = SETTINGS | {"size": {"shortest_edge": 1024, "longest_edge": 10**7}}
    _, grid = opened(tmp_path, max_tokens=12, **settings)(images(frames(3, 200, 100)), 3)
    assert grid[0] == 4 and 20 < grid[1] * grid[2] <= 12 * 4


@pytest.mark.parametrize(
    ("size", "seconds"), [((40, 30), 0.0), ((320, 200), 62.5), ((203, 461), 3723.25)]
)
def test_times_are_drawn(size: tuple[int, int], seconds: float, tmp_path: Path) -> None:
    times = open_drawn_times(save(tmp_path))
    assert times is not None
    (image,) = images(frames(1, *size))
    before = np.asarray(image).copy()
    stub = SimpleNamespace(font=str(tmp_path / "font.ttf"))
    shown = CLASS._convert_timestamp(stub, seconds)
    expected = CLASS._render_image_with_timestamp(stub, to_tensor(image), shown)
    drawn = np.asarray(times(image, seconds))
    assert (drawn.transpose(2, 0, 1) == expected.numpy()).all() and (drawn != before).any()
    assert (np.asarray(image) == before).all(), "a caller's frames stay"


def test_each_frame_has_its_time(tmp_path: Path) -> None:
    """That of the frame in the file, whichever are read."""
    folder = save(tmp_path, **SETTINGS, do_normalize=False)
    config = MediaConfig(media_io_kwargs={"video": {"num_frames": 3}})
    values = np.full((9, 32, 40, 3), 255, np.uint8)
    video = VideoFiles.open(config, folder, ROOMY).read_opened((values, 4.0))
    times = open_drawn_times(folder)
    assert times is not None and video.times is not None
    assert video.times.seconds == (0, 1, 2, 2)
    drawn = [times(Image.fromarray(values[0]), seconds) for seconds in video.times.seconds]
    plain = open_video_processor(folder, ROOMY)(drawn, 4)[0]
    assert (video.values == plain).all() and len({each.tobytes() for each in drawn}) == 3


def test_nothing_is_drawn_by_other_processors(tmp_path: Path) -> None:
    assert open_drawn_times(save(tmp_path, draw_on_frames=False)) is None
    save(tmp_path, video_processor_type="Qwen2VLVideoProcessor")
    assert open_drawn_times(tmp_path) is None


def test_what_times_cannot_be_drawn_on(tmp_path: Path) -> None:
    times = open_drawn_times(save(tmp_path))
    assert times is not None
    with pytest.raises(RenderError, match="9 x 40 pixels; both sides must have at least 10"):
        times(Image.new("RGB", (9, 40)), 0.0)
    for font in ("other.ttf", "../font.ttf", ""):
        with pytest.raises(
            RenderError, match="not beside the checkpoint: put it there, or set draw_on"
        ):
            open_drawn_times(save(tmp_path, font=font))
    save(tmp_path)
    (tmp_path / "font.ttf").write_bytes(b"no font")
    with pytest.raises(RenderError, match="the font 'font.ttf' cannot be used"):
        open_drawn_times(tmp_path)


def test_fonts_of_glyphs_that_are_too_large(tmp_path: Path) -> None:
    """Of a font in which an em has 20 units instead of 1000."""
    save(tmp_path)
    path = tmp_path / "font.ttf"
    font = bytearray(path.read_bytes())
    head = struct.unpack(">I", font[(at := font.index(b"head")) + 8 : at + 12])[0]
    font[head + 18 : head + 20] = struct.pack(">H", 20)
    path.write_bytes(font)
    with pytest.raises(RenderError, match="cannot be used: its glyphs are larger than lines"):
        open_drawn_times(tmp_path)
    with pytest.raises(RenderError, match="times cannot be drawn with its model's font"):
        DrawnTimes(bytes(font))(Image.new("RGB", (200, 200)), 0.0)
