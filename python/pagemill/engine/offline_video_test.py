"""Videos of an `LLM`: what they may be, where they stand in messages, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.config import MediaConfig
from pagemill.engine.offline_media import OfflineMedia
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes
from pagemill.render.testing.clips import Sound, clip, picture, tone

CLIP = clip(4, rate=2)
URL = f"data:video/mp4;base64,{base64.b64encode(CLIP).decode()}"
IMAGES = [picture(number) for number in range(4)]
PATCHES = np.ones((48, 96), np.float32), (2, 4, 6), FrameTimes((0.0, 0.5, 1.0, 1.5), 2.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4}
    settings |= {"min_pixels": 256, "max_pixels": 1024}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    (tmp_path / "clip.mp4").write_bytes(CLIP)
    return tmp_path


def opened(folder: Path, **options: Any) -> OfflineMedia:
    """Those of a model with a processor in `folder`."""
    return OfflineMedia(MediaConfig(**options), folder, 99)


def test_files_urls_and_frames_are_the_same(folder: Path):
    path = folder / "clip.mp4"
    array = np.stack([np.asarray(image) for image in IMAGES])
    sources = [IMAGES, array, (IMAGES, 2.0), (array, 2.0), path, str(path), URL]
    first, *others = opened(folder).all_prepared("video", sources)
    assert first.kind == "video" and first.grid == (2, 6, 8)
    for video in others:
        assert video.grid == first.grid and video.times == first.times
        np.testing.assert_allclose(video.values, first.values, atol=0.1)


def test_what_an_encoder_takes_is_not_read(folder: Path):
    (video,) = opened(folder).all_prepared("video", [PATCHES])
    assert video.values is PATCHES[0] and video[2:4] == PATCHES[1:] and video.sound is None
    (heard,) = opened(folder).all_prepared("video", [(*PATCHES, tone(1.0)[0])])
    assert heard[2:4] == PATCHES[1:] and heard.sound is not None and len(heard.sound) == 16_000


def test_the_sound_of_files_is_read_if_it_is_wanted(folder: Path):
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    settings["feature_extractor_type"] = "WhisperFeatureExtractor"
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    (folder / "film.mkv").write_bytes(clip(4, rate=2, kind="matroska", sound=Sound(tone(1.0))))
    media = opened(folder)
    content = [{"type": "video", "video": folder / "film.mkv"}, {"type": "video", "video": IMAGES}]
    for sound in (True, False, True):
        (film,) = media.all_prepared("video", [folder / "film.mkv"], sound=sound)
        _, (same, frames) = media.of_messages([{"role": "user", "content": content}], sound=sound)
        assert (film.sound is not None) == sound and same is film, "both are kept"
        assert frames.sound is None


def test_parts_of_messages(folder: Path):
    content = [
        {"type": "text", "text": "a"},
        {"type": "video_url", "video_url": {"url": URL}},
        {"type": "video", "video": folder / "clip.mp4"},
        {"type": "video", "video": PATCHES},
    ]
    messages, media = opened(folder).of_messages([{"role": "user", "content": content}])
    assert messages == [{"role": "user", "content": [content[0], *[{"type": "video"}] * 3]}]
    assert [video.grid for video in media] == [(2, 6, 8), (2, 6, 8), (2, 4, 6)]


@pytest.mark.parametrize(
    ("part", "options", "why"),
    [
        ({"type": "video_url", "video_url": "/etc/hostname"}, {}, "video_url must be an https:"),
        ({"type": "video", "video": "nowhere.mp4"}, {}, "nowhere.mp4 cannot be read"),
        ({"type": "video", "video": (IMAGES, 0.0)}, {}, "0 frames a second"),
        ({"type": "video", "video": np.zeros((1, 2))}, {}, "frames must be uint8"),
        ({"type": "video", "video": (*PATCHES[:1], (1, 2), None)}, {}, "grid must be 3 numbers"),
        ({"type": "video_url", "video_url": URL}, {"max_video_seconds": 1}, "longer than 1 s"),
        (
            {"type": "video_url", "video_url": URL},
            {"limit_mm_per_prompt": {"video": 0}},
            "1 videos; at most 0",
        ),
    ],
)
def test_refusals(folder: Path, part: dict[str, Any], options: dict[str, Any], why: str):
    with pytest.raises(EngineError, match=why) as error:
        opened(folder, **options).of_messages([{"role": "user", "content": [part]}])
    assert error.value.code == "INVALID_ARGUMENT"


def test_a_model_without_media(folder: Path):
    with pytest.raises(EngineError, match="this model takes no videos"):
        OfflineMedia(MediaConfig(), folder, 0).all_prepared("video", [URL])
