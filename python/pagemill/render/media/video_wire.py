"""What crosses between this process and one that decodes a video, as MessagePack.

The server sends a `VideoSetup`, then the file as it is. The other answers with a `VideoHeader`; for
a list of frames' numbers, with their `VideoFrame`s, the sound as `VideoSound`s if it is heard, and
`VideoEnd`; or, at any time, with `VideoRefusal`.
"""

from __future__ import annotations

import msgspec

from pagemill.render.media.video_bounds import VideoLimits


class VideoSetup(msgspec.Struct, array_like=True):
    """Limits of the file, and of the process: its processor time, and its memory beyond what it has
    with the file; and whether the file's sound is heard."""

    limits: VideoLimits
    max_cpu_s: float
    max_extra_bytes: int
    sound: bool = False


class VideoHeader(msgspec.Struct, array_like=True, tag=True):
    """See `OpenVideo`."""

    num_frames: int
    rate: float


class VideoFrame(msgspec.Struct, array_like=True, tag=True):
    """A frame, upright: uint8 [height, width, 3]."""

    width: int
    height: int
    rgb: bytes


class VideoSound(msgspec.Struct, array_like=True, tag=True):
    """Sound that follows what came before: f32 [n, channels], `rate` samples a second."""

    rate: int
    channels: int
    samples: bytes


class VideoEnd(msgspec.Struct, array_like=True, tag=True):
    """There is nothing further."""


class VideoRefusal(msgspec.Struct, array_like=True, tag=True):
    """Why there are none."""

    error: str


VideoReply = VideoHeader | VideoFrame | VideoSound | VideoEnd | VideoRefusal
