"""Processors of images and videos with false values in their files: they are refused by a sentence,
or each picture becomes finite numbers in bounded time and memory, or is refused."""

from __future__ import annotations

import copy
import json
import math
import re
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.render.errors import RenderError
from pagemill.render.media.processors import KNOWN, open_processor
from pagemill.render.media.video_processors import KNOWN_VIDEO, open_video_processor
from PIL import Image

from tests.faults.false_values import FUZZ, VALUES, as_json, put

MAX_TOKENS = 64
# An image of 4096 x 4096 pixels, the most that settings may ask for, takes 1 to 2 s.
MAX_SECONDS = 10.0
MAX_GROWTH_BYTES = 3 * 2**30
MAX_BYTES = 2 * 3 * 4 * 4096**2  # of what an encoder reads: two such images, f32
FEWER = settings(FUZZ, max_examples=25)
SIZES = (("size", "height"), ("size", "width"), ("crop_size", "height"), ("crop_size", "width"))
EDGES = (("size", "shortest_edge"), ("size", "longest_edge"))
COLORS = (("image_mean", 1), ("image_std", 1))
# What many processors accept together.
USUAL: Mapping[str, Any] = {
    "size": {"height": 32, "width": 32, "shortest_edge": 32, "longest_edge": 64},
    "crop_size": {"height": 32, "width": 32},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
MORE = (
    *([0.0] * 3, [math.nan] * 3, ["a"] * 3, [1e300] * 3, [1.0, 2.0], [[1, 2, 3]] * 3, "nan"),
    *({"height": 0, "width": 4}, {"height": 30000, "width": 30000}, {"height": [1], "width": "3"}),
    *({"longest_edge": 2**31 - 1}, {"shortest_edge": -1}, 1024, 30000, 46341, 2**16, 2**20),
)
PICTURES = [
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8))
    for size in ((48, 32), (1, 1), (2, 300), (300, 400))
]
Open = Callable[[], Callable[[Image.Image], Any]]


@pytest.fixture(autouse=True, scope="module")
def memory_is_bounded():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MAX_GROWTH_BYTES


def _keys(folder: Path, name: str) -> list[str]:
    """The settings that the processor reads, which the refusal of an unknown one lists."""
    for stated in ({}, USUAL):
        file = folder / "preprocessor_config.json"
        file.write_text(json.dumps({**stated, "image_processor_type": name}))
        try:
            open_processor(folder, MAX_TOKENS, {"none": 0})
        except RenderError as error:
            if listed := re.search("processor reads (.*)", str(error)):
                return listed.group(1).split(", ")
    return sorted(USUAL)


def _check(draw: st.DataObject, keys: list[str], file: Path, kind: dict[str, str], open: Open):
    """Writes false settings to `file`, and opens and calls a processor."""
    stated = copy.deepcopy(dict(USUAL)) if draw.draw(st.booleans()) else {}
    candidates = [*((key,) for key in keys), *(SIZES + EDGES + COLORS if stated else ())]
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.sampled_from(candidates))
        if len(place) == 1 or isinstance(stated[place[0]], type(USUAL[place[0]])):
            put(stated, place, copy.deepcopy(draw.draw(st.sampled_from((*VALUES, *MORE)))))
    file.write_text(as_json({**stated, **kind}))
    try:
        process = open()
    except RenderError as error:
        assert str(error) and len(str(error)) < 600 + len(str(file))
        return
    for picture in PICTURES:
        begin = time.process_time()
        try:
            prepared = process(picture)
        except RenderError as error:
            assert str(error)
            continue
        finally:
            assert time.process_time() - begin < MAX_SECONDS
        values = prepared[0] if isinstance(prepared, tuple) else prepared
        assert np.isfinite(values).all() and values.nbytes <= MAX_BYTES


@pytest.mark.parametrize("name", KNOWN)
def test_image_processors(tmp_path: Path, name: str) -> None:
    keys = _keys(tmp_path, name)

    @FEWER
    @given(draw=st.data())
    def check(draw: st.DataObject) -> None:
        file, kind = tmp_path / "preprocessor_config.json", {"image_processor_type": name}
        _check(draw, keys, file, kind, lambda: open_processor(tmp_path, MAX_TOKENS))

    check()


@pytest.mark.parametrize("name", KNOWN_VIDEO)
def test_video_processors(tmp_path: Path, name: str) -> None:
    keys = sorted({*USUAL, *_keys(tmp_path, "Qwen2VLImageProcessor")})

    def opened() -> Callable[[Image.Image], Any]:
        processor = open_video_processor(tmp_path, MAX_TOKENS)
        return lambda picture: processor([picture] * 3, 3)

    @FEWER
    @given(draw=st.data())
    def check(draw: st.DataObject) -> None:
        file, kind = tmp_path / "video_preprocessor_config.json", {"video_processor_type": name}
        _check(draw, keys, file, kind, opened)

    check()


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("MuseGlimmer", {"patch_size": 512, "max_image_tokens": 1}),
        ("NemotronH_Omni_Reasoning_V3", {"patch_size": 512, "max_num_patches": 1}),
    ],
)
def test_squares_have_bounded_pixels(tmp_path: Path, name: str, stated: dict[str, Any]) -> None:
    settings = {"min_num_patches": 1, "image_processor_type": f"{name}ImageProcessor", **stated}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(RenderError, match="such a square may have 131072 pixels"):
        open_processor(tmp_path, MAX_TOKENS)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("MuseGlimmer", {"patch_size": 128, "max_video_frame_tokens": 1}),
        ("Gemma4", {"patch_size": 64, "pooling_kernel_size": 4, "max_soft_tokens": 1}),
    ],
)
def test_frames_have_bounded_pixels(tmp_path: Path, name: str, stated: dict[str, Any]) -> None:
    """However few tokens a frame has."""
    settings = {"video_processor_type": f"{name}VideoProcessor", **stated}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(settings))
    process = open_video_processor(tmp_path, MAX_TOKENS)
    process(PICTURES[:1], 128)
    with pytest.raises(RenderError, match="129 frames of 256 x 256 pixels would be read"):
        process(PICTURES[:1], 129)
