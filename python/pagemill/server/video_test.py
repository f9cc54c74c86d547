"""Videos in messages of a chat: their parts, limits, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.config import ConfigError, MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.media.cache import PreparedCache
from pagemill.render.testing.clips import Sound, clip, jpeg, picture, tone
from pagemill.server.errors import ApiError
from pagemill.server.media import MediaReader, NoMedia, open_media
from pagemill.server.media_work import KeptMedia
from pagemill.server.protocol.chat import check_messages
from pagemill.server.protocol.media import SentMedia, media_parts, without_urls

OWNER = MediaOwner()
SETTINGS = {"patch_size": 4, "min_pixels": 256, "max_pixels": 1024}
IMAGES = {"image_processor_type": "Qwen2VLImageProcessor"} | SETTINGS


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


MP4 = f"data:video/mp4;base64,{base64_of(clip(8))}"
FRAMES = [base64_of(jpeg(picture(number))) for number in range(4)]
JPEGS = "data:video/jpeg;base64," + ",".join(FRAMES)
PNG = "data:image/jpeg;base64," + FRAMES[0]


def part(url: Any, kind: MediaKind = "video", **fields: Any) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}, **fields}


def messages(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "a"}, *parts]}]


def opened(
    folder: Path,
    settings: dict[str, Any] = IMAGES,
    kinds: Sequence[MediaKind] = ("image", "video"),
    **options: Any,
) -> MediaReader | NoMedia:
    """Of a model that takes images and videos."""
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    kept = KeptMedia(PreparedCache(2**20))
    return open_media(MediaConfig(**options), kinds, folder, 99, lambda prompt, _: prompt, kept)


def read(reader: MediaReader | NoMedia, *parts: dict[str, Any]) -> list[PreparedMedia]:
    sent = messages(*parts)
    check_messages(sent)
    return list(asyncio.run(reader.read(media_parts(sent), OWNER)))


def test_parts() -> None:
    sent = messages(part("https://video.example/a.mp4"), part(JPEGS, uuid="b"))
    check_messages(sent)
    assert media_parts(sent) == [
        SentMedia("video", "messages[0].content[1]", "https://video.example/a.mp4"),
        SentMedia("video", "messages[0].content[2]", JPEGS, "b"),
    ]
    text = {"type": "text", "text": "a"}
    assert without_urls(sent) == [{"role": "user", "content": [text, *[{"type": "video"}] * 2]}]
    with pytest.raises(ApiError, match=r"content\[1\].video_url` must be"):
        check_messages(messages(part(None)))


def test_videos_are_read_and_kept(tmp_path: Path) -> None:
    reader = opened(tmp_path)
    assert reader.kinds == ("image", "video")
    film, frames, image = read(reader, part(MP4, uuid="a"), part(JPEGS), part(PNG, "image"))
    assert [each.kind for each in (film, frames, image)] == ["video", "video", "image"]
    assert film.grid == (4, 6, 8) and frames.grid == (2, 6, 8) and image.grid == (1, 6, 8)
    again, same = read(reader, part(None, uuid="a") | {"video_url": None}, part(JPEGS))
    assert again is film and same is frames


@pytest.mark.parametrize(
    ("parts", "options", "why"),
    [
        ([part("data:;base64,YWJj")], {}, r"content\[1\]` cannot be read: it cannot be decoded"),
        ([part("data:video/jpeg;base64,YWJj,?")], {}, r"cannot be read: .* base64"),
        ([part(MP4)], {"max_video_bytes": 1024}, "larger than 1024 bytes"),
        ([part(JPEGS)], {"max_video_seconds": 1}, "longer than 1 s"),
        ([part(MP4)], {"max_image_pixels": 1024}, "64 x 48 pixels; at most 1024"),
        ([part(MP4)] * 2, {"limit_mm_per_prompt": {"video": 1}}, "2 videos; at most 1"),
        ([part(MP4)], {"limit_mm_per_prompt": {"video": 0}}, "1 videos; at most 0"),
        ([part("http://127.0.0.1/a.mp4")], {}, "--allowed-media-domains"),
        ([part(MP4, "audio")], {}, "has the type of audio; this model takes image and video"),
    ],
)
def test_refusals(
    parts: list[dict[str, Any]], options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ApiError, match=why) as error:
        read(opened(tmp_path, **options), *parts)
    assert error.value.status == 400


def test_models_without_video_say_what_they_take(tmp_path: Path) -> None:
    for reader, why in (
        (opened(tmp_path, kinds=["image"]), "type of video; this model takes image"),
        (NoMedia(), "type of video; this model takes parts of type `text` only"),
    ):
        with pytest.raises(ApiError, match=why):
            read(reader, part(MP4))


def test_frames_are_those_of_the_options(tmp_path: Path) -> None:
    reader = opened(tmp_path, media_io_kwargs={"video": {"num_frames": 2}})
    for video in read(reader, part(MP4), part(JPEGS)):
        assert video.grid == (1, 6, 8)
    reader = opened(tmp_path, mm_processor_kwargs={"max_pixels": 256})
    (video,) = read(reader, part(JPEGS))
    assert np.prod(video.grid) <= 2 * 256 // 16


HEARD = IMAGES | {"feature_extractor_type": "WhisperFeatureExtractor"}
FILM = clip(8, kind="matroska", sound=Sound(tone(0.5)))
FILM_URL = f"data:video/x-matroska;base64,{base64_of(FILM)}"


def test_sound_of_videos(tmp_path: Path) -> None:
    """A video is kept once with its sound and once without."""
    reader = opened(tmp_path, HEARD, ("image", "video", "audio"))
    sent = messages(part(FILM_URL, uuid="a"), part(FILM_URL), part(PNG, "image"))
    parts = {sound: media_parts(sent, video_sound=sound) for sound in (False, True)}
    assert [each.sound for each in parts[True]] == [True, True, False]
    for sound in (True, False, True):
        named, film, _ = asyncio.run(reader.read(parts[sound], OWNER))
        for video in (named, film):
            assert (video.sound is not None) == sound
    assert (film.sound == tone(0.5)[0]).all()
    assert film.num_bytes == film.values.nbytes + 8000 * 4
    again, *_ = asyncio.run(reader.read(parts[True], OWNER))
    assert again is named


@pytest.mark.parametrize(
    ("kinds", "options", "why"),
    [
        (("video",), {}, r"content\[1\]` cannot be read: this model takes no audio"),
        (("video", "audio"), {"limit_mm_per_prompt": {"audio": 0}}, "takes no audio"),
        (("video", "audio"), {"max_audio_seconds": 1}, "longer than 1 s"),
    ],
)
def test_sound_that_is_not_heard(
    kinds: Sequence[MediaKind], options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    long = clip(40, kind="matroska", sound=Sound(tone(2.0)))
    sent = messages(part(f"data:;base64,{base64_of(long)}"))
    reader = opened(tmp_path, HEARD, kinds, **options)
    with pytest.raises(ApiError, match=why) as error:
        asyncio.run(reader.read(media_parts(sent, video_sound=True), OWNER))
    assert error.value.status == 400
    assert asyncio.run(reader.read(media_parts(sent), OWNER))


def test_images_are_read_where_videos_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"video_processor_type": "SmolVLMVideoProcessor"}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(own))
    for options in ({}, {"mm_processor_kwargs": {"max_pixels": 256}}):
        reader = opened(tmp_path, **options)
        assert reader.kinds == ("image",) and read(reader, part(PNG, "image"))
        with pytest.raises(ApiError, match="is not known: video_processor_type is 'SmolVLM"):
            read(reader, part(MP4))
    with pytest.raises(ConfigError, match="--mm-processor-kwargs: num_frames cannot be set"):
        opened(tmp_path, mm_processor_kwargs={"num_frames": 1})
    (tmp_path / "video_preprocessor_config.json").unlink()
    monkeypatch.setitem(sys.modules, "av", None)
    reader = opened(tmp_path)
    assert read(reader, part(JPEGS))
    with pytest.raises(ApiError, match=r"pip install 'pagemill\[video\]'"):
        read(reader, part(MP4))
