"""Frames to what an encoder takes, as a checkpoint's `video_preprocessor_config.json` says.

    processor = open_video_processor(Path("Qwen2-VL-2B-Instruct"), max_tokens=2048)
    patches, grid = processor(images, count=len(images))

The results are those of the processors of `transformers` with these names, except that frames are
resized by Pillow, and made so small that all of a video have at most MAX_VIDEO_PIXELS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.media.gemma4 import Gemma4Processor
from pagemill.render.media.muse_glimmer import MuseGlimmerProcessor
from pagemill.render.media.patches import (
    SquareFrames,
    check_frames,
    check_group,
    cut_patches,
    fit_size,
)
from pagemill.render.media.pixels import (
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    Colors,
    center,
    check_aspect,
    positive,
    resampling,
    short_side_resized,
    sides,
)
from pagemill.render.media.slices import SlicedProcessor
from pagemill.render.special_tokens import read_json

MAX_VIDEO_PIXELS = 2**23
"""Of all frames of a video, once they are resized: 96 MiB."""
_FILE = "video_preprocessor_config.json"


class VideoProcessor(Protocol):
    """Makes an encoder's input of a video."""

    @property
    def frames(self) -> int:
        """How many an element of the grid spans in time."""
        ...

    def __call__(
        self, images: Iterable[Image.Image], count: int
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """The values and the grid of a video (`PreparedMedia`).

        Args:
          images: RGB; at least one, and at most `count`.
          count: by which the size of frames is chosen.

        Raises:
          RenderError: there is none, one is long and thin, or there are too many.
        """
        ...


class _Defaults(NamedTuple):
    """Those of a processor in `transformers`. `whole`: pixels are bounded of all frames together,
    and narrow frames enlarged."""

    patch: int
    least: int
    most: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class PatchProcessor:
    """Resizes all frames to one size, whole squares of patches that are merged, and cuts patches
    that span `frames` of them."""

    colors: Colors
    resample: Image.Resampling
    least: int
    most: int
    whole: bool
    patch: int
    merge: int
    frames: int
    max_tokens: int
    shares: bool = False
    """Whether `most` is of all frames together."""
    pairs: bool = False
    """Whether there is an even number of frames in time: the last one may count twice."""

    @classmethod
    def of(
        cls, defaults: _Defaults, settings: Mapping[str, Any], max_tokens: int
    ) -> PatchProcessor:
        """Reads the settings; what a patch spans in time becomes no larger than `max_tokens`.

        Raises:
          ValueError: a setting is not known.
        """
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        size = as_object(settings.get("size")) or {}
        least, most = (
            positive(settings.get(f"{name}_pixels", size.get(f"{edge}_edge", default)))
            for name, edge, default in (
                ("min", "shortest", defaults.least),
                ("max", "longest", defaults.most),
            )
        )
        patch = positive(settings.get("patch_size", defaults.patch))
        merge = positive(settings.get("merge_size", 2))
        frames = positive(settings.get("temporal_patch_size", 2))
        check_group(patch, merge, frames)
        return cls(
            Colors.of(settings, defaults.mean, defaults.std),
            resampling(settings, Image.Resampling.BICUBIC),
            least,
            most,
            defaults.whole,
            patch,
            merge,
            frames,
            max_tokens,
        )

    def __call__(
        self, images: Iterable[Image.Image], count: int
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches [time * rows * columns, channels], and (time, rows, columns). The last image
        fills up the last patches. See `VideoProcessor`."""
        steps: list[np.ndarray] = []
        group: list[np.ndarray] = []
        grid = (0, 0, 0)
        size: tuple[int, int] | None = None
        for image in images:
            if size is None:
                check_aspect(image)
                size = self._size(count, image)
            read = len(steps) * self.frames + len(group) + 1
            check_frames(read, size, MAX_VIDEO_PIXELS)
            group.append(self.colors(image.resize((size[1], size[0]), self.resample)))
            if len(group) == self.frames:
                patches, grid = cut_patches(np.stack(group), self.patch, self.merge)
                steps.append(patches)
                group.clear()
        if group:
            group += [group[-1]] * (self.frames - len(group))
            patches, grid = cut_patches(np.stack(group), self.patch, self.merge)
            steps.append(patches)
        if not steps:
            raise RenderError("it has no frames")
        if self.pairs and len(steps) % 2:
            steps.append(steps[-1])
        return np.concatenate(steps), (len(steps), grid[1], grid[2])

    def _size(self, count: int, image: Image.Image) -> tuple[int, int]:
        """Height and width of frames."""
        factor = self.patch * self.merge
        span = 2 if self.pairs else self.frames
        spanned = -(-count // span) * span
        room = min(MAX_VIDEO_PIXELS / spanned, self.max_tokens * factor**2)  # of a frame
        size = image.height, image.width
        if not self.whole:
            most = self.most // count if self.shares else self.most
            bounds = min(self.least, room), min(most, room)
            return fit_size(size, factor, bounds)
        spanned = max(round(count / self.frames), 1) * self.frames
        bounds = min(self.least, room * spanned), min(self.most, room * spanned)
        return fit_size(size, factor, bounds, enlarges=True, frames=count, spanned=spanned)


@dataclass(frozen=True, slots=True)
class FrameProcessor:
    """Resizes each frame to a `size`; or, if it `crops`, so that its shorter side is that of the
    size, which is cut out of the middle."""

    colors: Colors
    resample: Image.Resampling
    size: tuple[int, int]
    """Height and width."""
    crops: bool = False
    frames: int = 1

    @classmethod
    def cropped(cls, settings: Mapping[str, Any], max_tokens: int) -> FrameProcessor:
        """As `of`, of settings with the `shortest_edge` and a `crop_size`.

        Raises:
          ValueError: a setting is not known.
        """
        del max_tokens
        size = sides(settings.get("crop_size", 224))
        edge = as_object(settings.get("size", {"shortest_edge": 224})) or {}
        resizes = settings.get("do_resize", True) and settings.get("do_center_crop", True)
        if not resizes or (edge.get("shortest_edge"),) * 2 != size:
            raise ValueError("size must be the shortest_edge of a square crop_size")
        return cls._within(settings, size, crops=True)

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> FrameProcessor:
        """Reads the settings; all frames have the same number of tokens.

        Raises:
          ValueError: a setting is not known.
        """
        del max_tokens
        if not settings.get("do_resize", True) or settings.get("do_center_crop"):
            raise ValueError("do_resize must be true, and do_center_crop false")
        return cls._within(settings, sides(settings.get("size", 384)))

    @classmethod
    def _within(
        cls, settings: Mapping[str, Any], size: tuple[int, int], *, crops: bool = False
    ) -> FrameProcessor:
        """That of a `size` that a frame may have."""
        if math.prod(size) > MAX_VIDEO_PIXELS:
            raise ValueError(f"a frame may have {MAX_VIDEO_PIXELS} pixels, not {size}")
        resample = resampling(settings, Image.Resampling.BICUBIC)
        return cls(Colors.of(settings), resample, size, crops)

    def __call__(
        self, images: Iterable[Image.Image], count: int
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Frames [frames, 3, height, width], and (frames, 1, 1). See `VideoProcessor`."""
        height, width = self.size
        most = MAX_VIDEO_PIXELS // (height * width)
        if count > most:
            raise RenderError(
                f"{count} frames of {width} x {height} pixels would be read; at most {most} are"
                f""" taken: set --media-io-kwargs '{{"video": {{"num_frames": {most}}}}}'"""
            )
        frames: list[np.ndarray] = []
        for image in images:
            check_aspect(image)
            if self.crops:
                image = center(short_side_resized(image, height, self.resample), height, width)
            else:
                image = image.resize((width, height), self.resample)
            frames.append(self.colors(image))
        if not frames:
            raise RenderError("it has no frames")
        return np.stack(frames), (len(frames), 1, 1)


def _ernie(settings: Mapping[str, Any], max_tokens: int) -> PatchProcessor:
    """As Qwen2-VL's, of which a patch spans one frame. The model merges pairs of frames, on which
    their times are drawn (frame_times.py)."""
    if settings.get("temporal_patch_size", 2) != 2:
        raise ValueError("temporal_patch_size must be 2")
    settings = {**settings, "temporal_patch_size": 1}
    return replace(PatchProcessor.of(_ERNIE, settings, max_tokens), pairs=True)


def _video_llama3(settings: Mapping[str, Any], max_tokens: int) -> PatchProcessor:
    """As Qwen2-VL's, of which a patch spans one frame. The model leaves out the tokens of what does
    not change."""
    if not settings.get("use_token_compression", True) or settings.get("merge_size", 2) != 2:
        raise ValueError("use_token_compression must be true, and merge_size 2")
    settings = {"temporal_patch_size": 1, **settings}
    return replace(PatchProcessor.of(_VIDEO_LLAMA3, settings, max_tokens), shares=True)


def _gemma4(
    make: Callable[[Mapping[str, Any], int], Gemma4Processor],
    settings: Mapping[str, Any],
    max_tokens: int,
) -> SquareFrames:
    """Frames have fewer tokens than images, if the settings do not say how many."""
    given = {"do_normalize": True, "max_soft_tokens": 70, **settings}
    return SquareFrames(make(given, max_tokens), MAX_VIDEO_PIXELS)


def _muse_glimmer(settings: Mapping[str, Any], max_tokens: int) -> SquareFrames:
    """Frames have fewer tokens than images."""
    given = {**settings, "max_image_tokens": settings.get("max_video_frame_tokens", 144)}
    images = MuseGlimmerProcessor.of(given, max_tokens)
    return SquareFrames(images, MAX_VIDEO_PIXELS, images.frames)


@dataclass(frozen=True, slots=True)
class WholeFrameProcessor:
    """Resizes each frame as an image without slices; patches come row by row."""

    image: SlicedProcessor
    frames: int = 1

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> WholeFrameProcessor:
        """Reads the settings of MiniCPM-V's images, other than those of slices.

        Raises:
          ValueError: a setting is not known.
        """
        return cls(SlicedProcessor.of({**settings, "slice_mode": False}, max_tokens))

    @classmethod
    def ocr(cls, settings: Mapping[str, Any], max_tokens: int) -> WholeFrameProcessor:
        """As `of`, for MiniCPM-OCR."""
        return cls.of({"downsample_mode": "4x", **settings}, max_tokens)

    def __call__(
        self, images: Iterable[Image.Image], count: int
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches [frames * rows * columns, channels], and (frames, rows, columns). See
        `VideoProcessor`."""
        room = MAX_VIDEO_PIXELS // (count * self.image.patch**2)
        image = replace(self.image, max_patches=min(self.image.max_patches, room))
        steps: list[np.ndarray] = []
        rows, columns = 0, 0
        for each in images:
            patches, (_, rows, columns) = image(each)
            steps.append(patches)
            size = rows * image.patch, columns * image.patch
            check_frames(len(steps), size, MAX_VIDEO_PIXELS)
        if not steps:
            raise RenderError("it has no frames")
        return np.concatenate(steps), (len(steps), rows, columns)


_ERNIE = _Defaults(14, 28**2 * 299, 28**2 * 1196, CLIP_MEAN, CLIP_STD, False)
_GLM4V = _Defaults(14, 112**2, 28**2 * 2 * 30000, CLIP_MEAN, CLIP_STD, True)
_QWEN2_VL = _Defaults(14, 28**2 * 128, 28**2 * 768, CLIP_MEAN, CLIP_STD, False)
_QWEN3_VL = _Defaults(16, 32**2 * 128, 32**2 * 768, HALF, HALF, True)
_VIDEO_LLAMA3 = _QWEN2_VL._replace(mean=HALF, std=HALF)
_PROCESSORS: Mapping[str, Callable[[Mapping[str, Any], int], VideoProcessor]] = {
    "CohereCompassVideoProcessor": partial(PatchProcessor.of, _QWEN3_VL),
    "Ernie4_5_VLMoeVideoProcessor": _ernie,
    "Gemma4UnifiedVideoProcessor": partial(_gemma4, Gemma4Processor.unified),
    "Gemma4VideoProcessor": partial(_gemma4, Gemma4Processor.of),
    "Glm46VVideoProcessor": partial(PatchProcessor.of, _GLM4V),
    "Glm4vVideoProcessor": partial(PatchProcessor.of, _GLM4V),
    "InternVLVideoProcessor": FrameProcessor.of,
    "LlavaNextVideoVideoProcessor": FrameProcessor.cropped,
    "LlavaOnevisionVideoProcessor": FrameProcessor.of,
    "MiniCPMOcrVideoProcessor": WholeFrameProcessor.ocr,
    "MiniCPMV4_6VideoProcessor": WholeFrameProcessor.of,
    "MuseGlimmerVideoProcessor": _muse_glimmer,
    "Qwen2VLVideoProcessor": partial(PatchProcessor.of, _QWEN2_VL),
    "Qwen3VLVideoProcessor": partial(PatchProcessor.of, _QWEN3_VL),
    "VideoLlama3VideoProcessor": _video_llama3,
    "VideoLlavaVideoProcessor": FrameProcessor.cropped,
}
KNOWN_VIDEO = tuple(_PROCESSORS)
"""Types of processors, as `video_processor_type` names them."""
# The pixels of a frame by a checkpoint's processor, whatever its files say: from 128 to 768 tokens
# of these sides.
_SIDES = {"Qwen2_5OmniProcessor": 28, "Qwen3OmniMoeProcessor": 32}
# Of checkpoints whose image processor's settings are those of videos, too.
_BY_IMAGE_PROCESSOR = {
    "Gemma4ImageProcessor": "Gemma4VideoProcessor",
    "Gemma4UnifiedImageProcessor": "Gemma4UnifiedVideoProcessor",
    "GotOcr2ImageProcessor": "InternVLVideoProcessor",
    "LlavaNextImageProcessor": "LlavaNextVideoVideoProcessor",
    "LlavaOnevisionImageProcessor": "LlavaOnevisionVideoProcessor",
    "Qwen2VLImageProcessor": "Qwen2VLVideoProcessor",
    "VideoLlavaImageProcessor": "VideoLlavaVideoProcessor",
}


def video_settings(folder: Path) -> Mapping[str, Any]:
    """Those of the video processor of the checkpoint in `folder`, as its files state them.

    Raises:
      RenderError: a file cannot be read.
    """
    own = read_json(folder / _FILE) or as_object(
        read_json(folder / "processor_config.json").get("video_processor")
    )
    return own or read_json(folder / "preprocessor_config.json")


def processor_kind(settings: Mapping[str, Any]) -> str:
    """The type of processor that has these settings."""
    kind = str(settings.get("video_processor_type", ""))
    if kind:
        return kind
    image_kind = str(settings.get("image_processor_type", "")).removesuffix("Fast")
    return _BY_IMAGE_PROCESSOR.get(image_kind, image_kind)


def open_video_processor(
    folder: Path, max_tokens: int, overrides: Mapping[str, Any] | None = None
) -> VideoProcessor:
    """The processor of the checkpoint in `folder`.

    Args:
      folder: has video_preprocessor_config.json, processor_config.json with `video_processor`, or
        preprocessor_config.json.
      max_tokens: of what a patch spans in time; frames of more are made smaller.
      overrides: settings in place of those of the file; others than the processor's are not read.

    Raises:
      RenderError: there is none, or it does what is not known here.
    """
    settings = video_settings(folder)
    side = _SIDES.get(str(settings.get("processor_class")))
    if side is not None:
        bounds = {"min_pixels": 128 * side**2, "max_pixels": 768 * side**2}
        settings = {**settings, **bounds}
    kind = processor_kind(settings)
    make = _PROCESSORS.get(kind)
    if make is None:
        raise RenderError(f"video_processor_type is {kind[:60]!r}; known: {', '.join(_PROCESSORS)}")
    try:
        return make({**settings, **(overrides or {})}, max_tokens)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise RenderError(f"{_FILE} cannot be used: {error!s:.300}") from None
