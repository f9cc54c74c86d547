"""Small videos for tests: each frame is of one gray, by which it is known again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple, cast

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.video.stream import VideoStream
from PIL import Image

LEVELS = 4  # grays between a frame and the next one


class Sound(NamedTuple):
    """That of a clip: samples [channels, n], `rate` a second. As PCM it is kept as it is, rounded
    to 16 bits, in packets of so many samples, or in one."""

    samples: np.ndarray
    rate: int = 16_000
    codec: str = "pcm_s16le"
    packet: int | None = None

    def add_to(self, container: OutputContainer) -> AudioStream:
        """A stream for it."""
        stream = cast("AudioStream", container.add_stream(self.codec, rate=self.rate))
        stream.layout = self._layout
        return stream

    def frames(self) -> Iterator[av.AudioFrame]:
        """All samples."""
        total = self.samples.shape[1]
        for first in range(0, total, self.packet or total):
            own = self.samples[:, first : first + (self.packet or total)]
            values = own.T.astype(np.float32).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(values, "flt", self._layout)
            frame.sample_rate, frame.pts, frame.time_base = self.rate, first, Fraction(1, self.rate)
            yield frame

    @property
    def _layout(self) -> str:
        return {1: "mono", 2: "stereo", 8: "7.1"}[len(self.samples)]


def tone(seconds: float, rate: int = 16_000, channels: int = 1) -> np.ndarray:
    """Samples [channels, n] of A, that a clip has without a loss."""
    wave = np.sin(2 * np.pi * 440 / rate * np.arange(round(seconds * rate)))
    return np.tile(np.round(wave * 2**14) / 2**15, (channels, 1)).astype(np.float32)


def clip(
    frames: int = 30,
    size: tuple[int, int] = (64, 48),
    *,
    rate: int = 10,
    kind: str = "mp4",
    codec: str = "libx264",
    key_frames: int = 10,
    rotation: int = 0,
    sound: Sound | None = None,
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
        heard = None if sound is None else sound.add_to(container)
        for at in range(frames):
            pixels = np.asarray(picture(at, size))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
        if heard is not None and sound is not None:
            for frame in sound.frames():
                container.mux(heard.encode(frame))
            container.mux(heard.encode())
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
