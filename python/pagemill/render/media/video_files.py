"""Video files as an encoder takes them.

files = VideoFiles.open(MediaConfig(), Path("Qwen2-VL-2B-Instruct"), max_tokens=2048)
video = files.read(data)       # patches, their grid, and the times of frames
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from pagemill.config import MediaConfig
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.render.media.decode import ImageLimits, decoded
from pagemill.render.media.frame_times import DrawnTimes, open_drawn_times
from pagemill.render.media.media_files import MissingPackageError
from pagemill.render.media.motion_jpeg import JpegFrame, is_motion_jpeg, split_frames
from pagemill.render.media.video_bounds import FrameSampling, PixelBudget, VideoLimits
from pagemill.render.media.video_process import open_video
from pagemill.render.media.video_processors import VideoProcessor, open_video_processor
from pagemill.render.stop import Stop

MixSound = Callable[[Iterable[tuple[int, np.ndarray]]], np.ndarray | None]
"""Samples [n] of one channel at a model's rate, of blocks: how many there are in a second, and
some, f32 [channels, n]. None if there are no blocks."""
SEQUENCE_RATE = 2.0
"""Frames a second of JPEG files and arrays that do not say it."""


@dataclass(frozen=True, slots=True)
class VideoFiles:
    """Implements `MediaFiles`."""

    limits: VideoLimits
    sampling: FrameSampling
    processor: VideoProcessor
    drawn_times: DrawnTimes | None = None
    """What is drawn on frames, if it is."""

    @classmethod
    def open(cls, config: MediaConfig, folder: Path, max_tokens: int) -> VideoFiles:
        """See `open_files`."""
        return cls(
            VideoLimits(config.max_video_bytes, config.max_video_seconds, config.max_image_pixels),
            FrameSampling(config.video_num_frames, config.video_fps),
            open_video_processor(folder, max_tokens, config.mm_processor_kwargs),
            open_drawn_times(folder),
        )

    @property
    def max_bytes(self) -> int:
        """See `MediaFiles`."""
        return self.limits.max_bytes

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """See `MediaFiles.read`."""
        return self.read_with(data, None, stop)

    def read_with(
        self, data: bytes, mix: MixSound | None, stop: Stop | None = None
    ) -> PreparedMedia:
        """As `read`, with the sound that `mix` makes of that in a file, if there is one."""
        if is_motion_jpeg(data):
            return self._of_jpegs(split_frames(data), stop or Stop())
        if find_spec("av") is None:
            raise MissingPackageError(
                "videos that are not JPEG files are read by PyAV: pip install 'pagemill[video]'"
            )
        with open_video(data, self.limits, sound=mix is not None, stop=stop) as video:
            numbers = self.sampling.numbers(video.num_frames, video.rate)
            frames = video.frames(numbers)
            prepared = self._prepared(frames, numbers, video.num_frames, video.rate)
            return prepared if mix is None else prepared._replace(sound=mix(video.sound()))

    def read_opened(self, media: Any, /) -> PreparedMedia:
        """See `MediaFiles.read_opened`; frames, and how many there are in a second, or frames
        alone: uint8 [frames, height, width, 3], or a list of images of Pillow."""
        given = cast("Any", media) if isinstance(media, tuple) else (media, SEQUENCE_RATE)
        frames, rate = cast("tuple[np.ndarray | list[Image.Image], float]", given)
        if not rate > 0:
            raise RenderError(f"it has {rate:g} frames a second; there must be more than 0")
        if not isinstance(frames, np.ndarray):
            return self._of_images(len(frames), rate, lambda at: frames[at])
        if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
            raise RenderError(
                "frames must be uint8 [frames, height, width, 3], got"
                f" {frames.dtype} {list(frames.shape)}"
            )
        return self._of_images(len(frames), rate, lambda at: Image.fromarray(frames[at]))

    def _of_jpegs(self, frames: Sequence[JpegFrame], stop: Stop) -> PreparedMedia:
        limits = ImageLimits(self.limits.max_bytes, self.limits.max_pixels)
        budget = PixelBudget()

        def image_at(at: int) -> Image.Image:
            image = decoded(frames[at].data, limits, stop=stop)
            budget.spend(image.width, image.height, frames[at].scans)
            return image

        return self._of_images(len(frames), SEQUENCE_RATE, image_at)

    def _of_images(
        self, total: int, rate: float, image_at: Callable[[int], Image.Image]
    ) -> PreparedMedia:
        """Only images that are read are made; all must have one size."""
        if not total:
            raise RenderError("it has no frames")
        self.limits.check_length(total, rate)
        numbers = self.sampling.numbers(total, rate)

        def images() -> Iterator[Image.Image]:
            size = None
            for image in map(image_at, numbers):
                self.limits.check_size(image.width, image.height)
                if size not in (None, image.size):
                    raise RenderError("its frames have different sizes; they must have one")
                size = image.size
                yield image.convert("RGB")

        return self._prepared(images(), numbers, total, rate)

    def _prepared(
        self, images: Iterable[Image.Image], numbers: Sequence[int], total: int, rate: float
    ) -> PreparedMedia:
        """The video of frames `numbers`, or fewer of them, of `total`, `rate` a second."""
        read: list[int] = []

        def counted() -> Iterator[Image.Image]:
            for number, image in zip(numbers, images, strict=False):
                read.append(number)
                times = self.drawn_times
                yield image if times is None else times(image, number / rate)

        patches, grid = self.processor(counted(), len(numbers))
        seconds = [number / rate for number in read]
        seconds += seconds[-1:] * (grid[0] * self.processor.frames - len(seconds))
        times = FrameTimes(tuple(seconds), len(read) / total * rate)
        return PreparedMedia("video", patches, grid, times)
