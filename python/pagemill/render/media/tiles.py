"""Images divided into tiles of one size, with the whole image behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.json_values import as_array, as_object
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling, sides

Size = tuple[int, int]
"""Height and width, or rows and columns."""
Tiles = tuple[np.ndarray, tuple[int, int, int]]
"""Tiles, float32 [tiles, 3, height, width], and three numbers in time, height and width, such as
how many tiles there are."""
_LLAVA_NEXT_SIZES = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
_LLAVA_ONEVISION_SIZES = [[384 * rows, 384 * cols] for rows in range(1, 7) for cols in range(1, 7)]
_IMAGENET = {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)}
MAX_SIDE = 4096
"""Of a tile, and of a square of as many pixels as all tiles of an image may have."""
_MAX_TILES = 64
"""Of an image."""


@dataclass(frozen=True, slots=True)
class Idefics3Processor:
    """Resizes so that the longer side has `longest_edge`, then so that both are multiples of
    `tile`; cuts into tiles, row by row, and resizes the whole image to one more tile."""

    colors: Colors
    resample: Image.Resampling
    longest_edge: int
    tile: int
    splits: bool
    """Without it an image is resized to one tile."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Idefics3Processor:
        """Reads the settings; all tiles have the same number of tokens."""
        del max_tokens
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        size = as_object(settings.get("size", {"longest_edge": 4 * 364})) or {}
        longest = positive(size.get("longest_edge"))
        if longest > MAX_SIDE:
            raise ValueError(f"longest_edge is {longest}; at most {MAX_SIDE} pixels are known")
        named = as_object(settings.get("max_image_size", {"longest_edge": 364})) or {}
        tile = positive(named.get("longest_edge"))
        if tile > MAX_SIDE or math.ceil(longest / tile) ** 2 > _MAX_TILES:
            raise ValueError(
                f"tiles of {tile} pixels (max_image_size) for a longest_edge of {longest}: they may"
                f" have {MAX_SIDE}, and an image {_MAX_TILES} of them"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.LANCZOS),
            longest,
            tile,
            bool(settings.get("do_image_splitting", True)),
        )

    def __call__(self, image: Image.Image) -> np.ndarray | Tiles:
        check_aspect(image)
        image = image.resize(_longest(image.size, self.longest_edge), self.resample)
        tile = self.tile
        if self.splits:
            image = image.resize(self._whole_tiles(image.size), self.resample)
        columns, rows = image.width // tile, image.height // tile
        if not self.splits or columns == rows == 1:
            return self.colors(image.resize((tile, tile), self.resample))
        cut = cut_tiles(image, (tile, tile))
        cut.append(image.resize((tile, tile), self.resample))
        return np.stack([self.colors(each) for each in cut]), (1, rows, columns)

    def _whole_tiles(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height: the longer side up to the next multiple, and the other with it."""
        width, height = size
        aspect = width / height
        if width >= height:
            width = math.ceil(width / self.tile) * self.tile
            height = int(width / aspect)
        else:
            height = math.ceil(height / self.tile) * self.tile
            width = int(height * aspect)
        columns, rows = (math.ceil(side / self.tile) for side in (width, height))
        return columns * self.tile, rows * self.tile


@dataclass(frozen=True, slots=True)
class GridProcessor:
    """Resizes to the number of rows and columns of tiles, from `least` to `most` in all, that
    `choose` finds among them; cuts into tiles, row by row. If there are several, the whole image,
    resized to one tile, comes behind them."""

    colors: Colors
    resample: Image.Resampling
    tile: Size
    least: int
    most: int
    choose: Callable[[Size, Size, Sequence[Size]], Size]
    """Of the sizes of an image and of a tile, and grids, those of few tiles first."""
    most_side: int = _MAX_TILES
    """Tiles in a row or a column."""

    @classmethod
    def of_sides(cls, settings: Mapping[str, Any], most: int, most_side: int) -> GridProcessor:
        """Reads the other settings; `most` are tiles of an image, `most_side` those of a row or a
        column."""
        least = min(positive(settings.get("min_patches", 1)), most)
        return replace(cls._of(settings, 512, least, most, most_alike), most_side=most_side)

    @classmethod
    def got_ocr2(cls, settings: Mapping[str, Any], max_tokens: int) -> GridProcessor:
        """Reads the settings; all tiles have the same number of tokens. `crop_to_patches` is not
        read: the processors of InternVL and Aya Vision set it."""
        del max_tokens
        most = positive(settings.get("max_patches", 12))
        return cls._of(settings, 384, positive(settings.get("min_patches", 1)), most, most_alike)

    @classmethod
    def got_ocr2_whole(cls, settings: Mapping[str, Any], max_tokens: int) -> GridProcessor:
        """As `got_ocr2`, of GOT-OCR2 itself: images are one tile, unless `crop_to_patches` says
        otherwise."""
        if settings.get("crop_to_patches", False):
            return cls.got_ocr2(settings, max_tokens)
        return cls._of(settings, 384, 1, 1, most_alike)

    @classmethod
    def internvl_chat(cls, settings: Mapping[str, Any], max_tokens: int) -> GridProcessor:
        """Reads the settings of the model; all tiles have the same number of tokens."""
        del max_tokens
        most = 1
        if settings.get("dynamic_image_size", False):
            most = positive(settings.get("max_dynamic_patch", 6))
        if settings.get("pad2square") or (most > 1 and not settings.get("use_thumbnail", False)):
            raise ValueError("pad2square must be false, and use_thumbnail true")
        side = settings.get("force_image_size")
        if side is None:
            side = (as_object(settings.get("vision_config")) or {}).get("image_size", 448)
        side = positive(side)
        read = {"size": {"height": side, "width": side}, **_IMAGENET}
        least = positive(settings.get("min_dynamic_patch", 1))
        return cls._of(read, side, min(least, most), most, most_alike)

    @classmethod
    def cohere2_vision(cls, settings: Mapping[str, Any], max_tokens: int) -> GridProcessor:
        """Reads the settings; all tiles have the same number of tokens."""
        del max_tokens
        splits = settings.get("crop_to_patches", True)
        most = positive(settings.get("max_patches", 12)) if splits else 1
        return cls._of(settings, 512, 1, most, _least_enlarged)

    @classmethod
    def _of(
        cls,
        settings: Mapping[str, Any],
        size: int,
        least: int,
        most: int,
        choose: Callable[[Size, Size, Sequence[Size]], Size],
    ) -> GridProcessor:
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        if not least <= most <= _MAX_TILES:
            raise ValueError(
                f"min_patches is {least} and max_patches {most}; the most must be from the least to"
                f" {_MAX_TILES}"
            )
        height, width = tile = sides(settings.get("size", size))
        if max(tile) > MAX_SIDE or most * height * width > MAX_SIDE**2:
            raise ValueError(
                f"size is {width} x {height} and max_patches {most}; a side may have {MAX_SIDE}"
                f" pixels, and all tiles of an image {MAX_SIDE} x {MAX_SIDE}"
            )
        resample = resampling(settings, Image.Resampling.BICUBIC)
        return cls(Colors.of(settings), resample, tile, least, most, choose)

    def __call__(self, image: Image.Image) -> np.ndarray:
        check_aspect(image)
        return self.cut(image, self.grid((image.height, image.width)))

    def grid(self, size: Size) -> Size:
        """The rows and columns of tiles of an image."""
        grids = all_grids(self.least, self.most)
        return self.choose(size, self.tile, [each for each in grids if max(each) <= self.most_side])

    def cut(self, image: Image.Image, grid: Size) -> np.ndarray:
        """The tiles of so many rows and columns, and the whole image behind several."""
        (height, width), (rows, columns) = self.tile, grid
        whole = image.resize((columns * width, rows * height), self.resample)
        cut = cut_tiles(whole, self.tile)
        if len(cut) > 1:
            cut.append(image.resize((width, height), self.resample))
        return np.stack([self.colors(each) for each in cut])


@dataclass(frozen=True, slots=True)
class Llama4Processor:
    """Puts the image at the upper left of rows and columns of black tiles, at most `most`: those
    that hold it if it is enlarged least. It is made no larger than it is, or a tile is. Cuts into
    tiles, row by row; if there are several, the whole image, resized to one tile, comes behind
    them."""

    colors: Colors
    resample: Image.Resampling
    tile: int
    most: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Llama4Processor:
        """Reads the settings; all tiles have the same number of tokens."""
        del max_tokens
        if not settings.get("do_resize", True) or settings.get("resize_to_max_canvas"):
            raise ValueError("do_resize must be true, and resize_to_max_canvas false")
        height, width = sides(settings.get("size", 336))
        most = positive(settings.get("max_patches", 16))
        if height != width or most > _MAX_TILES or most * height**2 > MAX_SIDE**2:
            raise ValueError(
                f"size is {width} x {height} and max_patches {most}; a tile must be a square, and"
                f" an image may have {_MAX_TILES} of them and {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        resample = resampling(settings, Image.Resampling.BILINEAR)
        return cls(Colors.of(settings, HALF, HALF), resample, height, most)

    def __call__(self, image: Image.Image) -> np.ndarray | Tiles:
        check_aspect(image)
        tile = self.tile
        size = image.height, image.width
        rows, columns = _least_enlarged(size, (tile, tile), all_grids(1, self.most))
        most = min(max(size[0], tile), rows * tile), min(max(size[1], tile), columns * tile)
        canvas = Image.new("RGB", (columns * tile, rows * tile))
        canvas.paste(image.resize(_inside(image.size, most), self.resample))
        if rows == columns == 1:
            return self.colors(canvas)
        cut = [*cut_tiles(canvas, (tile, tile)), image.resize((tile, tile), self.resample)]
        return np.stack([self.colors(each) for each in cut]), (1, rows, columns)


@dataclass(frozen=True, slots=True)
class LlavaNextProcessor:
    """Resizes to one of `sizes`, keeping the shape, with black margins at two sides: that in which
    most of the image's pixels are kept. Cuts into tiles, row by row; the whole image, resized to
    one tile, comes in front of them."""

    colors: Colors
    resample: Image.Resampling
    tile: int
    sizes: tuple[Size, ...]

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> LlavaNextProcessor:
        """Reads the settings; sizes are those that the model knows."""
        del max_tokens
        resizes = settings.get("do_resize", True) and settings.get("do_center_crop", True)
        edge = as_object(settings.get("size", {"shortest_edge": 224})) or {}
        tile = sides(settings.get("crop_size", 224))
        if not resizes or (edge.get("shortest_edge"),) * 2 != tile:
            raise ValueError("size must be the shortest_edge of a square crop_size")
        return cls._of(settings, tile[0], _LLAVA_NEXT_SIZES)

    @classmethod
    def onevision(cls, settings: Mapping[str, Any], max_tokens: int) -> LlavaNextProcessor:
        """As `of`, with a `size` of height and width, and nothing cut. Each of several images of a
        prompt is divided, too."""
        del max_tokens
        height, width = sides(settings.get("size", 384))
        resizes = settings.get("do_resize", True) and not settings.get("do_center_crop")
        if not resizes or height != width:
            raise ValueError("size must be a square, do_resize true and do_center_crop false")
        return cls._of(settings, height, _LLAVA_ONEVISION_SIZES)

    @classmethod
    def _of(
        cls, settings: Mapping[str, Any], tile: int, default: Sequence[Sequence[int]]
    ) -> LlavaNextProcessor:
        listed = as_array(settings.get("image_grid_pinpoints", default)) or []
        sizes = tuple(sides(size) for size in listed[: _MAX_TILES + 1])
        largest = max(map(max, sizes), default=0)
        if not 0 < len(sizes) <= _MAX_TILES or largest > MAX_SIDE:
            raise ValueError(
                f"image_grid_pinpoints must be 1 to {_MAX_TILES} sizes, with sides of at most"
                f" {MAX_SIDE} pixels"
            )
        if any(side % tile for size in sizes for side in size):
            raise ValueError(f"image_grid_pinpoints must be multiples of {tile}")
        resample = resampling(settings, Image.Resampling.BICUBIC)
        return cls(Colors.of(settings), resample, tile, sizes)

    def __call__(self, image: Image.Image) -> Tiles:
        check_aspect(image)
        tile = self.tile
        height, width = max(self.sizes, key=lambda size: _pixels_kept(size, image.size))
        inner = _inside(image.size, (height, width), math.ceil)
        canvas = Image.new("RGB", (width, height))
        corner = (width - inner[0]) // 2, (height - inner[1]) // 2
        canvas.paste(image.resize(inner, self.resample), corner)
        cut = [image.resize((tile, tile), self.resample), *cut_tiles(canvas, (tile, tile))]
        return np.stack([self.colors(each) for each in cut]), (1, image.height, image.width)


@dataclass(frozen=True, slots=True)
class Gemma3Processor:
    """Resizes to a `size`. With `most_crops` (pan and scan) crops of a long image, one after the
    other, are resized likewise and come behind the whole."""

    colors: Colors
    resample: Image.Resampling
    size: Size
    most_crops: int
    least_crop: int
    """The shortest side of a crop, in pixels."""
    least_ratio: float
    """Of the longer side to the shorter one."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Gemma3Processor:
        """Reads the settings; all crops have the same number of tokens."""
        del max_tokens
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        most = 0
        if settings.get("do_pan_and_scan"):
            most = positive(settings.get("pan_and_scan_max_num_crops") or 4)
            if not 2 <= most <= _MAX_TILES:
                raise ValueError(f"pan_and_scan_max_num_crops must be 2 to {_MAX_TILES}")
        height, width = sides(settings.get("size", 224))
        if (1 + most) * height * width > MAX_SIDE**2:
            raise ValueError(
                f"size is {width} x {height} with {most} crops; all of an image may have"
                f" {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BILINEAR),
            (height, width),
            most,
            positive(settings.get("pan_and_scan_min_crop_size") or 256),
            max(1.0, float(settings.get("pan_and_scan_min_ratio_to_activate") or 1.2)),
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        check_aspect(image)
        height, width = self.size
        cut = [image, *(self._crops(image) if self.most_crops else [])]
        tiles = [self.colors(each.resize((width, height), self.resample)) for each in cut]
        return np.stack(tiles) if len(tiles) > 1 else tiles[0]

    def _crops(self, image: Image.Image) -> list[Image.Image]:
        across, along = sorted(image.size)
        if along < self.least_ratio * across:
            return []
        count = min(math.floor(along / across + 0.5), along // self.least_crop)
        count = min(max(count, 2), self.most_crops)
        length = math.ceil(along / count)
        if min(length, across) < self.least_crop:
            return []
        ends = [(first, min(first + length, along)) for first in range(0, along, length)]
        if image.width >= image.height:
            return [image.crop((first, 0, end, across)) for first, end in ends]
        return [image.crop((0, first, across, end)) for first, end in ends]


@dataclass(frozen=True, slots=True)
class Lfm2VlProcessor:
    """Resizes so that an image has from `least` to `most` tokens, keeps its shape about, and
    consists of whole squares of `merge` x `merge` patches. One that has far more pixels is also cut
    into tiles, row by row, by which it is preceded. A patch has its colors pixel by pixel; patches
    come row by row."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    merge: int
    least: int
    most: int
    tile: int
    """Pixels of a side."""
    tiles: tuple[int, int]
    """The least and the most of an image."""
    most_whole: float
    """Pixels of an image that is not cut."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Lfm2VlProcessor:
        """Reads the settings; an image becomes no larger than `max_tokens`, and is not cut into
        tiles that are."""
        if not settings.get("use_thumbnail", True):
            raise ValueError("use_thumbnail must be true")
        patch = positive(settings.get("encoder_patch_size", 16))
        merge = positive(settings.get("downsample_factor", 2))
        least = positive(settings.get("min_image_tokens", 64))
        most = positive(settings.get("max_image_tokens", 256))
        unit = patch * merge
        if least > most or most * unit**2 > MAX_SIDE**2:
            raise ValueError(
                f"min_image_tokens is {least} and max_image_tokens {most}, of {unit} x {unit}"
                f" pixels; the most must be no less, and have {MAX_SIDE} x {MAX_SIDE} pixels"
            )
        tolerance = float(settings.get("max_pixels_tolerance", 2.0))
        tile, tiles = _lfm2_tiles(settings, unit)
        if tiles[1] > 1 and most > (tile // unit) ** 2:
            raise ValueError(f"max_image_tokens is {most}; at most those of a tile are known")
        room = max(1, max_tokens)
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BILINEAR),
            patch,
            merge,
            min(least, room),
            min(most, room),
            tile,
            tiles if (tile // unit) ** 2 <= room else (1, 1),
            most * unit**2 * tolerance,
        )

    def __call__(self, image: Image.Image) -> Tiles:
        check_aspect(image)
        unit = self.patch * self.merge
        rows, columns = self._tokens(image.height, image.width)
        size = columns * unit, rows * unit
        whole = self._patches(image.resize(size, self.resample))
        shape = rows * self.merge, columns * self.merge
        tile_rows, tile_columns = self._grid(image)
        if tile_rows == tile_columns == 1:
            return whole, (1, *shape)
        tile = self.tile
        enlarged = image.resize((tile_columns * tile, tile_rows * tile), self.resample)
        cut = [self._patches(each) for each in cut_tiles(enlarged, (tile, tile))]
        cut.append(np.pad(whole, ((0, len(cut[0]) - len(whole)), (0, 0))))
        return np.stack(cut), (tile_rows, *shape)

    def _grid(self, image: Image.Image) -> Size:
        """Rows and columns of tiles; 1 and 1 if the image is not cut."""
        unit, tile = self.patch * self.merge, self.tile
        height, width = (
            max(self.patch, round(side / unit) * unit) for side in (image.height, image.width)
        )
        if self.tiles[1] == 1 or height * width <= self.most_whole:
            return 1, 1
        size = image.height, image.width
        return most_alike(size, (tile, tile), all_grids(*self.tiles))

    def _tokens(self, height: int, width: int) -> Size:
        """Rows and columns of the whole image. The longer side of a thin one is cut short where it
        would have too many."""
        unit = self.patch * self.merge
        sides = height / unit, width / unit
        rows, columns = (max(1, round(side)) for side in sides)
        if rows * columns > self.most:
            ratio = math.sqrt(math.prod(sides) / self.most)
            rows, columns = (max(1, math.floor(side / ratio)) for side in sides)
        elif rows * columns < self.least:
            ratio = math.sqrt(self.least / math.prod(sides))
            rows, columns = (math.ceil(side * ratio) for side in sides)
        if rows < columns:
            return rows, min(columns, max(1, self.most // rows))
        return min(rows, max(1, self.most // columns)), columns

    def _patches(self, image: Image.Image) -> np.ndarray:
        """float32 [patches, elements]."""
        patch, rows, columns = self.patch, image.height // self.patch, image.width // self.patch
        cut = self.colors(image).reshape(3, rows, patch, columns, patch).transpose(1, 3, 2, 4, 0)
        return cut.reshape(rows * columns, -1)


def _lfm2_tiles(settings: Mapping[str, Any], unit: int) -> tuple[int, tuple[int, int]]:
    """The side of a tile, and how many an image has at least and at most; raises ValueError."""
    tile = positive(settings.get("tile_size", 512))
    if not settings.get("do_image_splitting", True):
        return tile, (1, 1)
    least, most = positive(settings.get("min_tiles", 2)), positive(settings.get("max_tiles", 10))
    if not least <= most <= _MAX_TILES or tile % unit or most * tile**2 > MAX_SIDE**2:
        raise ValueError(
            f"min_tiles is {least}, max_tiles {most} and tile_size {tile}; tiles must have whole"
            f" squares of {unit} pixels, and an image from the least to {_MAX_TILES} of them, and"
            f" {MAX_SIDE} x {MAX_SIDE} pixels"
        )
    return tile, (least, most)


def _pixels_kept(size: Size, image: tuple[int, int]) -> tuple[int, int]:
    """How many pixels of an image of this width and height are kept if it is made to fit; and how
    much smaller the size is than others."""
    scale = min(size[1] / image[0], size[0] / image[1])
    kept = min(int(image[0] * scale) * int(image[1] * scale), math.prod(image))
    return kept, -math.prod(size)


def all_grids(least: int, most: int) -> list[Size]:
    """Rows and columns of `least` to `most` tiles; of as many tiles, fewer columns first."""
    grids = [
        (rows, columns)
        for columns in range(1, most + 1)
        for rows in range(1, most // columns + 1)
        if rows * columns >= least
    ]
    return sorted(grids, key=math.prod)


def most_alike(image: Size, tile: Size, grids: Sequence[Size]) -> Size:
    """The grid whose shape is most like the image's. Of equally good ones more tiles are taken if
    the image has more than half of their pixels."""
    aspect, area = image[1] / image[0], math.prod(image)
    best, least = (1, 1), math.inf
    for rows, columns in grids:
        difference = abs(aspect - columns / rows)
        enough = area > 0.5 * math.prod(tile) * rows * columns
        if difference < least or (difference == least and enough):
            best, least = (rows, columns), difference
    return best


def _least_enlarged(image: Size, tile: Size, grids: Sequence[Size]) -> Size:
    """The grid that holds the image, keeping its shape, if it is enlarged least; if the image is
    too large for all, the one for which it is made smaller least."""

    def scale(grid: Size) -> float:
        return min(grid[0] * tile[0] / image[0], grid[1] * tile[1] / image[1])

    large = [grid for grid in grids if scale(grid) >= 1]
    return min(large, key=scale) if large else max(grids, key=scale)


def cut_tiles(image: Image.Image, tile: tuple[int, int]) -> list[Image.Image]:
    """Tiles of this height and width, row by row."""
    height, width = tile
    return [
        image.crop((left, top, left + width, top + height))
        for top in range(0, image.height - height + 1, height)
        for left in range(0, image.width - width + 1, width)
    ]


def _longest(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """Width and height whose longer one is `edge`; the other is made even."""
    width, height = size
    aspect = width / height
    if width >= height:
        height = int(edge / aspect)
        return edge, max(height + height % 2, 1)
    width = int(edge * aspect)
    return max(width + width % 2, 1), edge


def _inside(
    size: tuple[int, int], most: Size, whole: Callable[[float], int] = math.floor
) -> tuple[int, int]:
    """Width and height of an image of `size` that keeps its shape within the height and width
    `most` and reaches one of them; the other is made a whole number."""
    width, height = size
    by_height, by_width = most[0] / height, most[1] / width
    if by_width < by_height:
        return most[1], max(min(whole(height * by_width), most[0]), 1)
    return max(min(whole(width * by_height), most[1]), 1), most[0]
