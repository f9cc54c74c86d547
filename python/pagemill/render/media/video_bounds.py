"""Which frames of a video are read, and what one may have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagemill.render.errors import RenderError

# A small frame counts as the least, since it takes time of its own.
_MAX_DECODED_PIXELS = 2**34
_LEAST_FRAME_PIXELS = 2**16


class VideoLimits(NamedTuple):
    """Of a video file: its bytes, its length, and the pixels of a frame."""

    max_bytes: int
    max_seconds: float
    max_pixels: int

    def check_length(self, frames: int, rate: float) -> None:
        """Raises RenderError if so many frames, `rate` a second, are too long a video."""
        if frames > self.max_seconds * rate:
            raise RenderError(f"it is longer than {self.max_seconds:g} s; send a shorter one")

    def check_size(self, width: int, height: int) -> None:
        """Raises RenderError if a frame is too large, or has no pixels."""
        if not 0 < width * height <= self.max_pixels:
            raise RenderError(
                f"its frames have {width} x {height} pixels; at most {self.max_pixels} are taken:"
                " send smaller ones"
            )


class PixelBudget:
    """What is decoded of a video to reach the frames that are read."""

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, width: int, height: int, passes: int = 1) -> None:
        """Counts a frame that is decoded in so many passes.

        Raises:
          RenderError: it is more than a video may have.
        """
        self._spent += max(width * height, _LEAST_FRAME_PIXELS) * passes
        if self._spent > _MAX_DECODED_PIXELS:
            raise RenderError(
                f"more than {_MAX_DECODED_PIXELS} pixels would be decoded to reach its frames;"
                " send a shorter or smaller one"
            )


class FrameSampling(NamedTuple):
    """At most `num_frames` of a video are read, and `fps` of each second, if it is not 0."""

    num_frames: int
    fps: float = 0.0

    def numbers(self, total: int, rate: float) -> list[int]:
        """Those of `total` frames that are read, evenly from the first to the last, in ascending
        order; the video has `rate` in a second."""
        count = min(self.num_frames, total)
        if self.fps:
            count = max(min(count, int(total / rate * self.fps)), 1)
        return np.linspace(0, total - 1, count).astype(int).tolist()
