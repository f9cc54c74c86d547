"""Images and frames of any size as patches, of which a model merges squares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.media.pixels import check_aspect

_MAX_GROUP_PIXELS = 2**17


def check_group(patch: int, merge: int, frames: int) -> None:
    """A thin image has 200 squares of patches that are merged, however large these are.

    Raises:
        ValueError: a square has too many pixels in the frames that its patches span.
    """
    side = patch * merge
    if side**2 * frames > _MAX_GROUP_PIXELS:
        raise ValueError(
            f"patches of {patch} pixels, {merge} x {merge} of which are merged, span {frames}"
            f" images: such a square may have {_MAX_GROUP_PIXELS} pixels"
        )


def check_frames(count: int, size: tuple[int, int], most: int) -> None:
    """Frames of a `size`, height and width, cannot become lower or narrower than what makes an
    embedding.

    Raises:
      RenderError: so many, or thin ones, have more than `most` pixels, those of a video.
    """
    height, width = size
    if count * height * width > most:
        raise RenderError(
            f"{count} frames of {width} x {height} pixels would be read, and all of a video may"
            f" have {most}: they are too many, or too thin"
        )


def fit_size(
    size: tuple[int, int],
    factor: int,
    bounds: tuple[float, float],
    *,
    enlarges: bool = False,
    frames: int = 1,
    spanned: int = 1,
) -> tuple[int, int]:
    """The height and width to which an image is resized: multiples of `factor` with about its
    shape, and from `bounds[0]` to `bounds[1]` pixels.

    Args:
      size: height and width.
      factor: pixels of a square that is merged.
      bounds: of the pixels of all frames together.
      enlarges: an image that is narrower than a square is first made as wide as one.
      frames: of a video.
      spanned: frames that its patches have room for.
    """
    height, width = size
    if enlarges and min(height, width) < factor:
        ratio = max(factor / height, factor / width)
        height, width = int(height * ratio), int(width * ratio)
    least, most = bounds
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if spanned * rows * columns > most:
        ratio = math.sqrt(frames * height * width / most)
        rows, columns = (
            max(factor, math.floor(side / ratio / factor) * factor) for side in (height, width)
        )
    elif spanned * rows * columns < least:
        ratio = math.sqrt(least / (frames * height * width))
        rows, columns = (math.ceil(side * ratio / factor) * factor for side in (height, width))
    return rows, columns


def cut_patches(
    frames: np.ndarray, patch: int, merge: int
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The patches of frames that each patch spans, and their grid.

    Args:
      frames: [frames, 3, height, width], both multiples of `patch * merge`.
      patch: side of a patch.
      merge: side, in patches, of a square that is merged; its patches are consecutive.

    Returns:
      Patches [rows * columns, 3 * frames * patch * patch], and (1, rows, columns).
    """
    count, colors, height, width = frames.shape
    rows, columns = height // patch, width // patch
    cut = frames.reshape(count, colors, rows // merge, merge, patch, columns // merge, merge, patch)
    patches = cut.transpose(2, 5, 3, 6, 1, 0, 4, 7)
    return patches.reshape(rows * columns, -1), (1, rows, columns)


class SquareProcessor(Protocol):
    """Cuts images into squares of `merge` x `merge` patches of `patch` pixels."""

    @property
    def patch(self) -> int: ...

    @property
    def merge(self) -> int: ...

    def at_most(self, squares: int) -> Self:
        """The same for images of so many squares at most, if it allows more."""
        ...

    def squares(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the squares of an image of this size."""
        ...

    def cut(
        self, image: Image.Image, squares: tuple[int, int]
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches [patches, channels] of so many rows and columns of squares, and their grid."""
        ...


@dataclass(frozen=True, slots=True)
class SquareFrames:
    """Cuts each frame as `images` does the first one, into fewer squares if all frames would have
    more pixels than `most_pixels`. A patch spans `frames` of them, one after the other; the last
    frame fills up the last patches."""

    images: SquareProcessor
    most_pixels: int
    frames: int = 1

    def __call__(
        self, images: Iterable[Image.Image], count: int
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches [time * rows * columns, channels], and (time, rows, columns).

        Raises:
          RenderError: there is no frame, one is long and thin, or there are too many.
        """
        side = self.images.patch * self.images.merge
        cut = self.images.at_most(max(1, self.most_pixels // (count * side**2)))
        steps: list[np.ndarray] = []
        squares, grid = (0, 0), (0, 0, 0)
        for image in images:
            if not steps:
                check_aspect(image)
                squares = rows, columns = cut.squares(image.height, image.width)
                check_frames(count, (rows * side, columns * side), self.most_pixels)
            patches, grid = cut.cut(image, squares)
            steps.append(patches)
        if not steps:
            raise RenderError("it has no frames")
        steps += [steps[-1]] * (-len(steps) % self.frames)
        patches, channels = steps[0].shape
        spans = np.stack(steps).reshape(-1, self.frames, patches, channels).transpose(0, 2, 1, 3)
        return spans.reshape(-1, self.frames * channels), (len(spans), grid[1], grid[2])
