"""Video files: which frames are read of them, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from pagemill.config import MediaConfig
from pagemill.render.errors import RenderError
from pagemill.render.media import video_bounds
from pagemill.render.media.data_url import data_of
from pagemill.render.media.media_files import MissingPackageError, open_files
from pagemill.render.media.motion_jpeg import split_frames
from pagemill.render.media.video_bounds import FrameSampling, VideoLimits
from pagemill.render.media.video_container import open_video
from pagemill.render.media.video_files import VideoFiles
from pagemill.render.testing.clips import clip, jpeg, number_of, picture
from pagemill.render.testing.stops import LateStop

LIMITS = VideoLimits(max_bytes=2**20, max_seconds=60, max_pixels=10_000)
CLIP = clip()
GRAY = {"do_normalize": False, "patch_size": 8, "min_pixels": 1024, "max_pixels": 4096}


def files(folder: Path, **options: Any) -> VideoFiles:
    """Of a model whose frames become 64 x 48 pixels, in patches of 8 x 8."""
    settings = {"image_processor_type": "Qwen2VLImageProcessor"} | GRAY
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    found = open_files("video", MediaConfig(**options), folder, max_tokens=100)
    assert isinstance(found, VideoFiles)
    return found


def frames_of(values: np.ndarray, steps: int) -> list[int]:
    """The numbers of the frames that patches were cut of."""
    cut = values.reshape(steps, -1, 3, 2, 8, 8) * 255
    return [number_of(step[:, :, frame]) for step in cut for frame in (0, 1)]


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("mp4", "libx264"),
        ("mp4", "libx265"),
        ("mp4", "libsvtav1"),
        ("mov", "mpeg4"),
        ("webm", "libvpx"),
        ("webm", "libvpx-vp9"),
        ("matroska", "libx264"),
        ("avi", "libx264"),
    ],
)
def test_formats(kind: str, codec: str):
    with open_video(clip(kind=kind, codec=codec), LIMITS) as video:
        assert (video.num_frames, video.rate) == (30, 10)
        wanted = [0, 3, 14, 15, 29]
        images = list(video.frames(wanted))
    assert all(image.mode == "RGB" and image.size == (64, 48) for image in images)
    found = [number_of(image) for image in images]
    assert np.abs(np.subtract(found, wanted)).max() <= 1, "grays are not exact"


def test_frames_become_patches(tmp_path: Path):
    video = files(tmp_path, media_io_kwargs={"video": {"num_frames": 5}}).read(CLIP)
    assert video.kind == "video" and video.grid == (3, 6, 8)
    assert video.values.shape == (3 * 6 * 8, 3 * 2 * 64) and video.values.dtype == np.float32
    assert frames_of(video.values, 3) == [0, 7, 14, 21, 29, 29]
    assert video.times is not None
    assert video.times.seconds == (0.0, 0.7, 1.4, 2.1, 2.9, 2.9)
    assert video.times.rate == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 30), ({"fps": 2}, 6), ({"fps": 0.1}, 1), ({"num_frames": 8, "fps": 60}, 8)],
)
def test_numbers_of_frames(options: dict[str, Any], count: int, tmp_path: Path):
    video = files(tmp_path, media_io_kwargs={"video": options}).read(CLIP)
    assert video.times is not None and len(set(video.times.seconds)) == count


def test_sampling_is_even():
    assert FrameSampling(4).numbers(8, 1.0) == [0, 2, 4, 7]
    assert FrameSampling(4).numbers(3, 1.0) == [0, 1, 2]
    assert FrameSampling(4).numbers(1, 30.0) == [0]


def test_key_frames_are_leapt_to(monkeypatch: pytest.MonkeyPatch):
    """Of a long video little is decoded."""
    frames = 600
    data = clip(frames, rate=60, key_frames=60)
    monkeypatch.setattr(video_bounds, "_MAX_DECODED_PIXELS", 150 * 2**16)
    with open_video(data, LIMITS) as video:
        found = [number_of(image) for image in video.frames([0, 300, 599])]
    assert np.abs(np.subtract(found, [0, 300 % 64, 599 % 64])).max() <= 1
    data = clip(frames, rate=60, key_frames=frames)
    with (
        open_video(data, LIMITS) as video,
        pytest.raises(RenderError, match="pixels would be decoded to reach its frames"),
    ):
        list(video.frames([0, 300]))


def test_rotated_frames_are_upright():
    with open_video(clip(3, rotation=90), LIMITS) as video:
        (image,) = video.frames([1])
    assert image.size == (48, 64)


def test_files_that_end_early(tmp_path: Path):
    """Frames that a header promises and that are not there are left out."""
    data = clip(300, codec="mpeg4", kind="avi")
    video = files(tmp_path).read(data[: len(data) // 2])
    assert video.times is not None and 0 < video.times.seconds[-1] < 20


def url_of(*frames: bytes) -> str:
    """Frames as the URL of a video."""
    import base64

    return "data:video/jpeg;base64," + ",".join(base64.b64encode(f).decode() for f in frames)


def test_jpeg_files_are_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "av", None)
    pictures = [jpeg(picture(number)) for number in range(5)]
    data = data_of(url_of(*pictures), 2**20)
    assert split_frames(data) == [(picture, 1) for picture in pictures]
    video = files(tmp_path).read(data)
    assert video.grid == (3, 6, 8) and frames_of(video.values, 3) == [0, 1, 2, 3, 4, 4]
    assert video.times is not None
    assert video.times.seconds == (0.0, 0.5, 1.0, 1.5, 2.0, 2.0) and video.times.rate == 2
    with pytest.raises(MissingPackageError, match=r"pip install 'pagemill\[video\]'"):
        files(tmp_path).read(CLIP)


def test_jpeg_files_are_decoded_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(video_bounds, "_MAX_DECODED_PIXELS", 20 * 2**16)
    assert files(tmp_path).read(jpeg(picture(1)) * 20)
    for data in (jpeg(picture(1)) * 21, jpeg(picture(1), progressive=True) * 3):
        with pytest.raises(RenderError, match="pixels would be decoded"):
            files(tmp_path).read(data)


def test_jpeg_files_end_with_their_request(tmp_path: Path):
    data = b"".join(jpeg(picture(number)) for number in range(8))
    whole = LateStop()
    files(tmp_path).read(data, whole)
    stop = LateStop(whole.asked // 2)
    with pytest.raises(RenderError):
        files(tmp_path).read(data, stop)
    assert stop.asked < 3 * whole.asked // 4, "no further frame is read"


def test_jpeg_files_with_thumbnails_and_restarts():
    """Ends and starts of files may be in segments, and scans have markers."""
    plain = jpeg(picture(3))
    thumbnail = b"\xff\xe1" + (2 + len(plain)).to_bytes(2) + plain
    restarts = Image.effect_noise((64, 64), 90).convert("RGB")
    import io

    noisy = io.BytesIO()
    restarts.save(noisy, "JPEG", restart_marker_blocks=1)
    given = [plain[:2] + thumbnail + plain[2:], noisy.getvalue(), plain]
    assert [frame.data for frame in split_frames(b"".join(given))] == given


def test_opened_frames(tmp_path: Path):
    images = [picture(number) for number in range(4)]
    array = np.stack([np.asarray(image) for image in images])
    reader = files(tmp_path)
    for media in (images, array, (images, 2.0), (array, 2)):
        video = reader.read_opened(media)
        assert video.grid == (2, 6, 8) and frames_of(video.values, 2) == [0, 1, 2, 3]
        assert video.times is not None and video.times.seconds == (0.0, 0.5, 1.0, 1.5)


@pytest.mark.parametrize(
    ("media", "why"),
    [
        (np.zeros((2, 8, 8, 3)), r"uint8 \[frames, height, width, 3\], got float64"),
        (np.zeros((2, 8, 8), np.uint8), r"got uint8 \[2, 8, 8\]"),
        ([], "no frames"),
        (([picture(1)], 0), "0 frames a second"),
        ([picture(1), picture(2, (8, 8))], "different sizes"),
        (([picture(1)] * 11, 10), "longer than 1 s"),
        ([picture(1, (200, 100))], "200 x 100 pixels; at most 10000"),
    ],
)
def test_refused_frames(media: Any, why: str, tmp_path: Path):
    with pytest.raises(RenderError, match=why):
        files(tmp_path, max_video_seconds=1, max_image_pixels=10_000).read_opened(media)


def playlist() -> bytes:
    """Names another file."""
    return b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be decoded; files of type MP4"),
        (CLIP[:400], "cannot be decoded"),
        (playlist(), "cannot be decoded"),
        (clip(3, kind="mpegts"), "cannot be decoded"),
        (clip(3, codec="mpeg2video", rate=25), "its codec is not taken; known: AV1"),
        (clip(3, (200, 100)), "200 x 100 pixels; at most 10000 are taken"),
        (clip(61, rate=1), "longer than 60 s"),
        (jpeg(picture(1))[:-5], "each must be a whole JPEG file"),
        (jpeg(picture(1)) + b"more", "each must be a whole JPEG file"),
        (jpeg(picture(1)) + b"\xff\xd8\xff\xe0", "each must be a whole JPEG file"),
        (jpeg(picture(1)) + jpeg(picture(1, (8, 8))), "different sizes"),
        (b"\xff\xd8\xff\xd9", "cannot be decoded"),
        (jpeg(picture(1, (200, 100))), "200 x 100 pixels"),
        (jpeg(picture(1)) * 121, "longer than 60 s"),
        (b"\xff\xd8\xff\xd9" * 4097, "more than 4096 frames"),
    ],
)
def test_refusals(data: bytes, why: str, tmp_path: Path):
    reader = files(tmp_path, max_video_seconds=60, max_image_pixels=10_000)
    with pytest.raises(RenderError, match=why):
        reader.read(data)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (url_of(*[b""] * 4097), "at most 4096 files"),
        ("data:image/jpeg;base64,eHg=,eHg=", "at most 1 files"),
        (url_of(bytes(2000)), "larger than 1024 bytes"),
        (url_of(bytes(600), bytes(600)), "larger than 1024 bytes"),
        ("data:video/jpeg;base64,?,eHg=", "does not hold base64"),
    ],
)
def test_urls_that_are_refused(url: str, why: str):
    with pytest.raises(RenderError, match=why):
        data_of(url, 1024)


def test_only_sound(tmp_path: Path):
    import io

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=48_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 48_000
        container.mux([*stream.encode(frame), *stream.encode()])
    with pytest.raises(RenderError, match="it has no video"):
        files(tmp_path).read(file.getvalue())
