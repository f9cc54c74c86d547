"""Videos that take much of a machine, or end their decoder, are refused, and nothing else is."""

from __future__ import annotations

import io
import os
import signal
import struct
from collections.abc import Iterable
from fractions import Fraction
from typing import cast

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from pagemill.render.errors import RenderError
from pagemill.render.media import video_bounds, video_container, video_process
from pagemill.render.media.video_bounds import VideoLimits
from pagemill.render.media.video_process import open_video
from pagemill.render.stop import Stop
from pagemill.render.testing.clips import clip, number_of

LIMITS = VideoLimits(max_bytes=2**20, max_seconds=60, max_pixels=10_000)
CLIP = clip()


def with_fragment(samples: int) -> bytes:
    """An MP4 file that begins with a fragment of so many samples, of a byte each."""
    fragmented = clip(kind="ismv")
    header = box(b"tfhd", struct.pack(">IIII", 0x18, 1, 1, 1))  # of track 1: duration 1, size 1
    run = box(b"trun", struct.pack(">II", 0, samples))
    at = fragmented.index(b"moof") - 4
    return fragmented[:at] + box(b"moof", box(b"traf", header + run)) + fragmented[at:]


def box(kind: bytes, content: bytes) -> bytes:
    """A part of an MP4 file."""
    return struct.pack(">I", 8 + len(content)) + kind + content


def vp8(size: int, grays: Iterable[int]) -> list[bytes]:
    """Frames, each of one gray; all but the first refer to it."""
    codec = cast("VideoCodecContext", av.CodecContext.create("libvpx", "w"))
    codec.width = codec.height = size
    codec.pix_fmt, codec.time_base = "yuv420p", Fraction(1, 30)
    codec.options = {"lag-in-frames": "0", "deadline": "realtime"}
    packets = []
    for gray in grays:
        pixels = np.full((size, size, 3), gray, np.uint8)
        packets += codec.encode(av.VideoFrame.from_ndarray(pixels, "rgb24"))
    return [bytes(packet) for packet in [*packets, *codec.encode()]]


def webm(size: int, frames: Iterable[bytes]) -> bytes:
    """A file of VP8 whose header has this size."""
    file = io.BytesIO()
    with av.open(file, "w", format="webm") as container:
        stream = cast("VideoStream", container.add_stream("libvpx", rate=30))
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        for number, frame in enumerate(frames):
            packet = av.Packet(frame)
            packet.stream, packet.time_base = stream, Fraction(1, 30)
            packet.pts = packet.dts = number
            packet.is_keyframe = True
            container.mux(packet)
    return file.getvalue()


def test_frames_cross():
    with open_video(CLIP, LIMITS) as video:
        assert (video.num_frames, video.rate) == (30, 10)
        images = list(video.frames([0, 7, 29]))
    assert [number_of(image) for image in images] == [0, 7, 29]
    assert all(image.mode == "RGB" and image.size == (64, 48) for image in images)
    with open_video(CLIP, LIMITS) as video:
        next(video.frames([0, 7, 29]))  # the others are not read


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Demuxers build a table of as many samples as a file says it has."""
    monkeypatch.setattr(video_process, "_MAX_BYTES", 2**27)
    with open_video(with_fragment(10), LIMITS) as video:
        assert video.num_frames == 40
    with (
        pytest.raises(RenderError, match="more than 134857728 bytes of memory to decode"),
        open_video(with_fragment(10_000_000), LIMITS),
    ):
        pass


def test_processor_time_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(video_process, "_MAX_CPU_S", 0.001)
    with (
        pytest.raises(RenderError, match=r"more than 0\.001 s of processor time to decode"),
        open_video(clip(600, rate=60), LIMITS) as video,
    ):
        list(video.frames(list(range(600))))


def test_frames_that_are_not_shown_count(monkeypatch: pytest.MonkeyPatch):
    key, inter = vp8(64, [10, 20])
    hidden = bytes((inter[0] & ~0x10, *inter[1:]))
    data = webm(64, [key, *[hidden] * 50, key])
    with video_container.open_video(data, LIMITS) as video:
        assert len(list(video.frames([0, 51]))) == 2
    monkeypatch.setattr(video_bounds, "_MAX_DECODED_PIXELS", 40 * 2**16)
    with (
        video_container.open_video(data, LIMITS) as video,
        pytest.raises(RenderError, match="pixels would be decoded to reach its frames"),
    ):
        list(video.frames([0, 51]))


def test_frames_larger_than_the_header_says_are_not_decoded():
    """The decoder refuses them: else it would be said how large they are."""
    data = webm(64, [*vp8(64, [10]), *vp8(2048, [10])])
    with (
        video_container.open_video(data, LIMITS) as video,
        pytest.raises(RenderError, match="cannot be decoded"),
    ):
        list(video.frames([0, 1]))


@pytest.mark.parametrize("opened", [open_video, video_container.open_video])
def test_errors_of_callers_are_theirs(opened: object):
    with pytest.raises(KeyError), opened(CLIP, LIMITS):  # type: ignore[operator]
        raise KeyError


def test_processes_whose_frames_are_not_wanted_any_more_end():
    stop = Stop()
    with (
        pytest.raises(RenderError, match="its decoder ended with signal 9"),
        open_video(CLIP, LIMITS, stop=stop) as video,
    ):
        pid = video._child.pid
        stop.set()
        list(video.frames([0]))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with (
        pytest.raises(RenderError, match="its decoder ended with signal 9"),
        open_video(CLIP, LIMITS, stop=stop),
    ):
        pass


def test_processes_that_end():
    with (
        open_video(CLIP, LIMITS) as video,
        pytest.raises(RenderError, match="its decoder ended with signal 11"),
    ):
        os.kill(video._child.pid, signal.SIGSEGV)
        list(video.frames([0]))
    with (
        open_video(CLIP, LIMITS) as video,
        pytest.raises(RuntimeError, match="decodes videos failed with status 1"),
    ):
        list(video.frames(["a mistake of ours"]))  # type: ignore[list-item]
