"""Images and frames of any size as patches, of which a model merges squares."""

from __future__ import annotations

import math

import numpy as np

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
