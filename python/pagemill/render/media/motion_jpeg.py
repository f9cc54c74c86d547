"""JPEG files one behind another, as frames of a video: Motion JPEG without a container."""

from __future__ import annotations

from typing import NamedTuple

from pagemill.render.errors import RenderError
from pagemill.render.media.jpeg_markers import START, JpegMarkers

MAX_FRAMES = 4096


class JpegFrame(NamedTuple):
    """A file, and in how many scans it has to be decoded."""

    data: bytes
    scans: int


def is_motion_jpeg(data: bytes) -> bool:
    """Whether `data` begins as a JPEG file."""
    return data.startswith(START)


def split_frames(data: bytes) -> list[JpegFrame]:
    """The JPEG files in `data`, none of which is decoded.

    Raises:
      RenderError: it does not consist of JPEG files, or of more than MAX_FRAMES, or one exceeds a
        limit of `jpeg_markers`.
    """
    frames: list[JpegFrame] = []
    markers = JpegMarkers(data)
    begin = 0
    while begin < len(data):
        if len(frames) == MAX_FRAMES:
            raise RenderError(f"it has more than {MAX_FRAMES} frames; send fewer")
        if not data.startswith(START, begin):
            raise _damaged()
        end, scans = markers.read(begin)
        if end is None:
            raise _damaged()
        frames.append(JpegFrame(data[begin:end], scans))
        begin = end
    return frames


def _damaged() -> RenderError:
    return RenderError("its frames cannot be decoded; each must be a whole JPEG file")
