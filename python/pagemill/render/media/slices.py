"""Images of any size with slices of large ones, for MiniCPM-V, MiniCPM-OCR and Idefics2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.json_values import as_object
from pagemill.render.media.patches import check_group, cut_patches
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling
from pagemill.render.media.tiles import MAX_SIDE, Size, Tiles, cut_tiles

_MODES = {"16x": 4, "4x": 2}  # patches in a row of the square that makes a token
_MAX_SLICES = 64
_SMALLER = 1.02  # from one attempt to the next


@dataclass(frozen=True, slots=True)
class SlicedProcessor:
    """Resizes so that an image has about as many pixels as a square of `resolution`, keeps its
    shape about, and consists of whole squares of `unit` pixels. One that has more pixels is also
    enlarged or reduced to at most `most` slices, in rows and columns, of such a size each. Patches
    come row by row."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    unit: int
    resolution: int
    most: int
    enlarges: bool
    """Whether images that are smaller, and have no slices, get as many pixels."""
    max_patches: int
    """Of the whole image, and of each slice."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> SlicedProcessor:
        """Reads the settings of MiniCPM-V; the whole image becomes no larger than `max_tokens`
        embeddings of 4 patches, and slices are left out that would."""
        return cls._of(settings, max_tokens, "16x", enlarges=True)

    @classmethod
    def ocr(cls, settings: Mapping[str, Any], max_tokens: int) -> SlicedProcessor:
        """As `of`, for MiniCPM-OCR."""
        upsize = settings.get("small_image_upsize", "always")
        if upsize not in ("always", "never"):
            raise ValueError(f"small_image_upsize is {upsize!r}; known: always, never")
        return cls._of(settings, max_tokens, "4x", enlarges=upsize == "always")

    @classmethod
    def _of(
        cls, settings: Mapping[str, Any], max_tokens: int, default: str, *, enlarges: bool
    ) -> SlicedProcessor:
        mode = settings.get("downsample_mode", default)
        if not settings.get("do_resize", True) or mode not in _MODES:
            raise ValueError(f"do_resize must be true, and downsample_mode {' or '.join(_MODES)}")
        patch = positive(settings.get("patch_size", 14))
        resolution = positive(settings.get("scale_resolution", 448))
        most = 1
        if settings.get("slice_mode", True):
            most = positive(settings.get("max_slice_nums", 9))
        unit = patch * _MODES[mode]
        check_group(patch, _MODES[mode], 1)
        if most > _MAX_SLICES or most * max(unit, resolution) ** 2 > MAX_SIDE**2:
            raise ValueError(
                f"max_slice_nums is {most}, scale_resolution {resolution} and patch_size {patch};"
                f" an image may have {_MAX_SLICES} slices and {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BICUBIC),
            patch,
            unit,
            resolution,
            most,
            enlarges,
            4 * max(1, max_tokens),
        )

    def __call__(self, image: Image.Image) -> Tiles:
        check_aspect(image)
        size = image.height, image.width
        grid = self._grid(size)
        slice_size = None if grid is None else self._slice_size(size, grid)
        if slice_size is not None and not self._fits(slice_size):
            grid = None
        enlarges = self.enlarges and grid is None
        whole, shape = self._patches(self._resized(image, self._whole_size(size, enlarges)))
        if grid is None or slice_size is None:
            return whole, shape
        (rows, columns), (height, width) = grid, slice_size
        canvas = self._resized(image, (rows * height, columns * width))
        slices = [self._patches(each) for each in cut_tiles(canvas, slice_size)]
        return _with_slices((whole, shape), slices, rows)

    def _grid(self, size: Size) -> Size | None:
        """Rows and columns of slices; None if there are none. Of as many as the image has pixels
        for, one less and one more, those of a shape that is most like the image's."""
        height, width = size
        count = min(math.ceil(height * width / self.resolution**2), self.most)
        if count <= 1:
            return None
        grids = [
            (rows, slices // rows)
            for slices in range(max(2, count - 1), min(count + 1, self.most) + 1)
            for rows in range(1, slices + 1)
            if slices % rows == 0
        ]
        shape = math.log(width / height)

        def unlike(grid: Size) -> tuple[float, int]:
            return abs(shape - math.log(grid[1] / grid[0])), -grid[0]

        return min(grids, key=unlike)

    def _slice_size(self, size: Size, grid: Size) -> Size:
        each = [_multiple(side, count) / count for side, count in zip(size, grid, strict=True)]
        return self._fitted((each[0], each[1]), self.resolution, enlarges=True)

    def _whole_size(self, size: Size, enlarges: bool) -> Size:
        resolution = float(self.resolution)
        fitted = self._fitted(size, resolution, enlarges=enlarges)
        while not self._fits(fitted) and max(fitted) > self.unit:
            resolution /= _SMALLER
            fitted = self._fitted(size, resolution, enlarges=enlarges)
        return fitted

    def _fitted(self, size: tuple[float, float], resolution: float, *, enlarges: bool) -> Size:
        """Height and width in whole units, with about as many pixels as a square of `resolution`;
        of fewer as many as they are, unless it `enlarges`."""
        height, width = size
        if enlarges or height * width > resolution**2:
            aspect = width / height
            height = int(resolution / math.sqrt(aspect))
            width = int(height * aspect)
        return _multiple(height, self.unit), _multiple(width, self.unit)

    def _fits(self, size: Size) -> bool:
        return size[0] * size[1] <= self.max_patches * self.patch**2

    def _resized(self, image: Image.Image, size: Size) -> Image.Image:
        return image.resize((size[1], size[0]), self.resample)

    def _patches(self, image: Image.Image) -> Tiles:
        return cut_patches(self.colors(image)[None], self.patch, 1)


@dataclass(frozen=True, slots=True)
class QuarteredProcessor:
    """Resizes so that no side has more pixels than `longest` and none has fewer than `shortest`,
    keeping the shape about; pixels behind the last whole patch are left out. If it `divides`, each
    quarter of an image is resized so, too. Patches come row by row."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    shortest: int
    longest: int
    divides: bool

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> QuarteredProcessor:
        """Reads the settings; all images have the same number of tokens."""
        del max_tokens
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        edges = {"shortest_edge": 378, "longest_edge": 980}
        size = as_object(settings.get("size", edges)) or {}
        shortest, longest = (positive(size.get(edge)) for edge in edges)
        patch = positive(settings.get("patch_size", 14))
        divides = bool(settings.get("do_image_splitting", False))
        most = math.isqrt(MAX_SIDE**2 // (5 if divides else 1))  # four quarters and the whole image
        if not patch <= shortest <= longest <= most:
            raise ValueError(
                f"shortest_edge is {shortest} and longest_edge {longest}; they must be from patches"
                f" of {patch} pixels to {most}"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BILINEAR),
            patch,
            shortest,
            longest,
            divides,
        )

    def __call__(self, image: Image.Image) -> Tiles:
        check_aspect(image)
        whole = self._patches(image, self._size(image))
        if not self.divides or min(image.size) < 2:
            return whole
        left, top = image.width // 2, image.height // 2
        boxes = [
            (x, y, right, bottom)
            for y, bottom in ((0, top), (top, image.height))
            for x, right in ((0, left), (left, image.width))
        ]
        quarters = [image.crop(box) for box in boxes]
        # Of an odd number of pixels, one quarter has more than another: all get one size.
        size = self._size(quarters[0])
        return _with_slices(whole, [self._patches(each, size) for each in quarters], 2)

    def _size(self, image: Image.Image) -> Size:
        """Height and width."""
        height, width = image.height, image.width
        aspect = width / height
        if width >= height and width > self.longest:
            height, width = int(self.longest / aspect), self.longest
        elif height > self.longest:
            height, width = self.longest, int(self.longest * aspect)
        return max(height, self.shortest), max(width, self.shortest)

    def _patches(self, image: Image.Image, size: Size) -> Tiles:
        pixels = self.colors(image.resize((size[1], size[0]), self.resample))
        height, width = (side // self.patch * self.patch for side in size)
        return cut_patches(pixels[None, :, :height, :width], self.patch, 1)


def _with_slices(whole: Tiles, slices: Sequence[Tiles], rows: int) -> Tiles:
    """Slices of one size, in so many rows, and the whole image behind them."""
    (patches, shape), (first, (_, height, width)) = whole, slices[0]
    filled = -(-len(patches) // len(first)) * len(first)
    behind = np.pad(patches, ((0, filled - len(patches)), (0, 0)))
    blocks = np.concatenate([*(each for each, _ in slices), behind])
    return blocks.reshape(-1, height, width, patches.shape[1]), (rows, *shape[1:])


def _multiple(length: float, unit: int) -> int:
    """The multiple of `unit` that is nearest to `length`, at least one."""
    return max(round(length / unit) * unit, unit)
