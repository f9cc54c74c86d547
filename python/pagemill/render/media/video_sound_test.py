"""The sound of video files: what is heard of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.config import MediaConfig
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.render.media.media_files import open_files, read_with_sound, wants_sound
from pagemill.render.media.video_bounds import VideoLimits
from pagemill.render.media.video_container import open_video as open_here
from pagemill.render.media.video_process import open_video
from pagemill.render.testing.clips import Sound, clip, jpeg, picture, tone

LIMITS = VideoLimits(max_bytes=2**20, max_seconds=60, max_pixels=10_000)


def read(folder: Path, data: bytes, **options: Any) -> PreparedMedia:
    """By a model of frames and 16,000 samples a second."""
    settings: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 8}
    settings |= {"feature_extractor_type": "WhisperFeatureExtractor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    config = MediaConfig(**options)
    videos, audio = (open_files(kind, config, folder, 100) for kind in ("video", "audio"))
    return read_with_sound(videos, audio, data)


@pytest.mark.parametrize(
    ("kind", "codec", "rate", "channels"),
    [
        ("matroska", "pcm_s16le", 16_000, 1),
        ("matroska", "flac", 48_000, 2),
        ("webm", "libopus", 48_000, 2),
        ("mp4", "aac", 44_100, 1),
        ("matroska", "pcm_s16le", 48_000, 8),
        ("avi", "libmp3lame", 44_100, 2),
    ],
)
def test_formats(kind: str, codec: str, rate: int, channels: int, tmp_path: Path) -> None:
    samples = tone(1.5, rate, channels)
    video_codec = "libvpx" if kind == "webm" else "libx264"
    data = clip(15, kind=kind, codec=video_codec, sound=Sound(samples, rate, codec))
    video = read(tmp_path, data)
    assert video.grid is not None and video.sound is not None
    assert video.sound.dtype == np.float32 and video.sound.ndim == 1
    assert abs(len(video.sound) - 24_000) <= 1600, "encoders add some"
    waves = np.abs(np.fft.rfft(video.sound[4000:20_000]))
    assert waves.argmax() == 440, "a second has as many Hz as it has bins"
    if rate == 16_000:
        assert (video.sound == samples[0]).all()


def test_channels_are_averaged(tmp_path: Path) -> None:
    left = tone(1.0)
    data = clip(kind="matroska", sound=Sound(np.concatenate([left, np.zeros_like(left)])))
    sound = read(tmp_path, data).sound
    assert sound is not None
    np.testing.assert_allclose(sound, left[0] / 2, atol=1e-6)


def test_small_packets_are_joined() -> None:
    """A message for each would be much work, of which a file may make millions."""
    samples = tone(0.5)
    with open_here(
        clip(5, kind="matroska", sound=Sound(samples, packet=1)), LIMITS, sound=True
    ) as video:
        (block,) = video.sound()
    np.testing.assert_allclose(np.frombuffer(block.samples, np.float32), samples[0], atol=2**-14)
    long = clip(5, kind="matroska", sound=Sound(tone(5.0, channels=2), packet=1000))
    with open_here(long, LIMITS, sound=True) as video:
        blocks = list(video.sound())
    assert len(blocks) == 3 and sum(len(block.samples) for block in blocks) == 5 * 16_000 * 2 * 4


def test_videos_without_sound(tmp_path: Path) -> None:
    frames = b"".join(jpeg(picture(number)) for number in range(4))
    for data in (clip(), frames):
        video = read(tmp_path, data)
        assert video.kind == "video" and video.sound is None


def test_sound_is_heard_if_it_is_wanted() -> None:
    """Its decoders are not open otherwise."""
    data = clip(kind="matroska", sound=Sound(tone(1.0)))
    with open_video(data, LIMITS) as video:
        assert len(list(video.frames([0, 29]))) == 2
        assert not list(video.sound())
    with open_video(data, LIMITS, sound=True) as video:
        next(video.frames([0, 7, 29]))  # the others are passed over
        assert sum(block.shape[1] for _, block in video.sound()) == 16_000
    with open_here(data, LIMITS, sound=True) as video:
        assert {block.rate for block in video.sound()} == {16_000}


@pytest.mark.parametrize(
    ("sound", "options", "why"),
    [
        (Sound(tone(2.0)), {"max_audio_seconds": 1}, "longer than 1 s"),
        (Sound(tone(2.0)), {"max_video_seconds": 1}, "longer than 1 s"),
        (
            Sound(tone(1.0, 48_000), 48_000, "ac3"),
            {},
            "the codec of its sound is not taken; known: AAC",
        ),
        (Sound(tone(1.0), codec="pcm_s24le"), {}, "the codec of its sound is not taken"),
    ],
)
def test_refusals(sound: Sound, options: dict[str, Any], why: str, tmp_path: Path) -> None:
    data = clip(5, kind="matroska", sound=sound)
    with pytest.raises(RenderError, match=why):
        read(tmp_path, data, **options)


def test_sound_that_changes_is_refused(tmp_path: Path) -> None:
    read(tmp_path, clip())
    audio = open_files("audio", MediaConfig(), tmp_path, 100)
    mix = audio.mix  # type: ignore[attr-defined]
    block = np.zeros((2, 9), np.float32)
    assert len(mix([(16_000, block), (16_000, block)])) == 18
    for other in ((8_000, block), (16_000, block[:1])):
        with pytest.raises(RenderError, match="the rate or the channels of its sound change"):
            mix([(16_000, block), other])
    with pytest.raises(RenderError, match="33 channels"):
        mix([(16_000, np.zeros((33, 9), np.float32))])
    with pytest.raises(RenderError, match="not finite"):
        mix([(16_000, block * np.nan)])


def test_settings_of_requests() -> None:
    assert wants_sound({"use_audio_in_video": True})
    assert not wants_sound({}) and not wants_sound({"use_audio_in_video": False})
    for settings in ({"fps": 2}, {"use_audio_in_video": 1}, {"use_audio_in_video": True, "a": 1}):
        with pytest.raises(RenderError, match="`use_audio_in_video`, true or false"):
            wants_sound(settings)
