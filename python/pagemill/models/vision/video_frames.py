"""Videos of models whose patches span a few frames: what a patch spans is an item of its own, which
attends to itself alone, so that a video of any length is encoded in steps.

The items of a video share one beginning, and differ in time, or each has text in front of it or
behind it, and the positions of an image. Of models whose images have one size, a frame is an item.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.models.vision.grid_vision import GridPatches

_TIME = 0  # the dimension of grid positions


def split_video(tower: GridPatches, video: PreparedMedia) -> tuple[list[PreparedMedia], FrameTimes]:
    """What patches span one after the other, as images, and the times of all frames.

    Raises:
        ValueError: it is no video as `PreparedMedia` describes it.
    """
    if video.grid is None or video.times is None:
        raise ValueError(
            "a video of this model has a grid and times: give (patches, (time, rows, columns),"
            " FrameTimes)"
        )
    time, height, width = video.grid
    frames = len(video.times.seconds)
    number = time * height * width
    is_grid = min(video.grid) > 0
    if not is_grid or len(video.values) != number or frames != time * tower.frames:
        raise ValueError(
            f"a video of {time} x {height} x {width} patches must have {number} of"
            f" them and the times of {time * tower.frames} frames, got {len(video.values)} and"
            f" {frames}"
        )
    if not video.times.rate > 0:
        raise ValueError(f"the frames of a video must have a rate above 0, got {video.times.rate}")
    if not all(map(math.isfinite, video.times.seconds)):
        raise ValueError("the frames of a video must have times that are finite")
    values = video.values.reshape(time, height * width, -1)
    return [PreparedMedia("image", each, (1, height, width)) for each in values], video.times


def frames_of(video: PreparedMedia, shape: tuple[int, int, int]) -> np.ndarray:
    """The frames [frames, *shape] of a video, each an image of `shape`.

    Raises:
        ValueError: it has none, others, or another grid.
    """
    frames = video.values
    expected = (len(frames), *shape)
    if not len(frames) or frames.shape != expected or video.grid != (len(frames), 1, 1):
        raise ValueError(
            f"a video of this model must be frames [frames, {', '.join(map(str, shape))}] and the"
            f" grid (frames, 1, 1), got {list(frames.shape)} and {video.grid}"
        )
    return frames


def in_time(items: Sequence[MediaFeatures], times: Sequence[int]) -> list[MediaFeatures]:
    """The items at these ascending times, with one beginning. What follows the last has a position
    above all of theirs."""
    moved: list[MediaFeatures] = []
    for at, (item, time) in enumerate(zip(items, times, strict=True)):
        assert item.positions is not None
        tokens = item.positions.tokens.copy()
        tokens[:, _TIME] += time
        is_last = at == len(items) - 1
        after = max(item.positions.next, time + 1) if is_last else 0
        positions = GridPositions(item.positions.rows, tokens, after)
        moved.append(MediaFeatures(item.rows, item.tokens, positions, placement=item.placement))
    return moved


def positions_of_items(items: int, times: FrameTimes, frames: int, per_second: int) -> list[int]:
    """The position in time of each of so many items of `frames` frames, of which there are
    `per_second`; fractions are rounded down, in f32 as `transformers` does."""
    interval = np.float32(per_second * frames / times.rate)
    return (np.arange(items, dtype=np.float32) * interval).astype(int).tolist()


def seconds_of_items(times: FrameTimes, frames: int) -> np.ndarray:
    """The times of the frames of each item, of which each has `frames`: f64 [items, frames]."""
    return np.array(times.seconds).reshape(-1, frames)


VISION_ENDS = ("<|vision_start|>", "<|vision_end|>")
"""The tokens around each of `timed_items`."""


def timed_items(
    items: Sequence[PreparedMedia],
    times: FrameTimes,
    frames: int,
    ends: tuple[str, str] = VISION_ENDS,
) -> list[PreparedMedia | str]:
    """Each item of `frames` frames between the `ends` of a medium, with the middle of its first and
    its last frame in front of it, in seconds."""
    start, end = ends
    parts: list[PreparedMedia | str] = []
    for item, seconds in zip(items, seconds_of_items(times, frames), strict=True):
        middle = (seconds[0] + seconds[-1]) / 2
        parts += [f"<{middle:.1f} seconds>{start}", item._replace(kind="video"), end]
    return parts
