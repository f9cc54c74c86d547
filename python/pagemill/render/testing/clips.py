"""Small videos for tests: each frame is of one gray, by which it is known again."""

from __future__ import annotations

import io
from typing import cast

import av
import numpy as np
from av.video.stream import VideoStream
from PIL import Image

LEVELS = 4  # grays between a frame and the next one


def clip(
    frames: int = 30,
    size: tuple[int, int] = (64, 48),
    *,
    rate: int = 10,
    kind: str = "mp4",
    codec: str = "libx264",
    key_frames: int = 10,
    rotation: int = 0,
) -> bytes:
    """A file of this `kind`. `size`: width and height; `key_frames`: one of so many frames is one;
    `rotation`: degrees by which a player turns it."""
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        stream = cast("VideoStream", container.add_stream(codec, rate=rate))
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = key_frames
        stream.codec_context.thread_count = 1
        stream.codec_context.options = {"sc_threshold": "0"}  # no further key frames
        if rotation:
            stream.set_display_rotation(rotation)
        for at in range(frames):
            pixels = np.asarray(picture(at, size))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def picture(number: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """Frame `number` of a clip."""
    gray = number * LEVELS % 256
    return Image.new("RGB", size, (gray, gray, gray))


def number_of(image: Image.Image | np.ndarray) -> int:
    """The frame of a clip that this is, about."""
    return round(float(np.asarray(image, np.float32).mean()) / LEVELS)


def jpeg(image: Image.Image, *, progressive: bool = False) -> bytes:
    """The image's JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95, progressive=progressive)
    return file.getvalue()
