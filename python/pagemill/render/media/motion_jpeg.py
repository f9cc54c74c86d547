"""JPEG files one behind another, as frames of a video: Motion JPEG without a container."""

from __future__ import annotations

import re

from pagemill.render.errors import RenderError

MAX_FRAMES = 4096
_START = b"\xff\xd8\xff"
_END, _SCAN = 0xD9, 0xDA
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a length
# In a scan 0xff is followed by 0x00 or a restart marker; anything else ends it.
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def is_motion_jpeg(data: bytes) -> bool:
    """Whether `data` begins as a JPEG file."""
    return data.startswith(_START)


def split_frames(data: bytes) -> list[bytes]:
    """The JPEG files in `data`, none of which is decoded.

    Raises:
      RenderError: it does not consist of JPEG files, or of more than MAX_FRAMES.
    """
    frames: list[bytes] = []
    begin = 0
    while begin < len(data):
        if len(frames) == MAX_FRAMES:
            raise RenderError(f"it has more than {MAX_FRAMES} frames; send fewer")
        end = _end_of_file(data, begin)
        frames.append(data[begin:end])
        begin = end
    return frames


def _end_of_file(data: bytes, begin: int) -> int:
    """Behind the JPEG file that begins at `begin`."""
    if not data.startswith(_START, begin):
        raise _damaged()
    at = begin + 2
    while at + 1 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _END:
            return at + 2
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + max(int.from_bytes(data[at + 2 : at + 4]), 2)
            if marker == _SCAN:
                found = _AFTER_SCAN.search(data, at)
                at = len(data) if found is None else found.start()
    raise _damaged()


def _damaged() -> RenderError:
    return RenderError("its frames cannot be decoded; each must be a whole JPEG file")
