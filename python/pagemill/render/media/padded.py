"""Images on black margins that make them whole patches or squares of patches, for Kimi-VL, Kimi
K2.5 and Aria."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.patches import check_group, cut_patches
from pagemill.render.media.pixels import HALF, Colors, check_aspect, positive, resampling, sides
from pagemill.render.media.tiles import MAX_SIDE

_SMALLER = 1.02  # from one attempt to the next
_MAX_MERGE = 8
_KIMI_VL_SIDE = 512  # patches in a row or column, which padding must not reach


@dataclass(frozen=True, slots=True)
class PaddedProcessor:
    """Makes an image smaller that has more than `most_patches` whole patches, or `most_side` in a
    row or column, keeps its shape about, and puts it at the upper left of black squares of `merge`
    x `merge` patches. Patches are in rows."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    merge: int
    most_patches: int
    most_side: int
    max_tokens: int
    """Squares of an image."""

    @classmethod
    def kimi_k25(cls, settings: Mapping[str, Any], max_tokens: int) -> PaddedProcessor:
        """Reads the settings of `transformers`; an image becomes no larger than `max_tokens`."""
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        size = settings.get("size", {"max_height": 512, "max_width": 512})
        height, width = positive(size["max_height"]), positive(size["max_width"])
        if height != width:
            raise ValueError("max_height and max_width of size must be equal")
        merge = positive(settings.get("merge_size", 2))
        most = positive(settings.get("max_patches", 16384))
        return cls._of(settings, merge, most, height, max_tokens)

    @classmethod
    def kimi_k25_published(cls, settings: Mapping[str, Any], max_tokens: int) -> PaddedProcessor:
        """As `kimi_k25`, under the names of the model's own files."""
        if settings.get("fixed_output_tokens") is not None:
            raise ValueError("fixed_output_tokens is not known")
        merge = positive(settings.get("merge_kernel_size", 2))
        most = positive(settings.get("in_patch_limit", 16384))
        side = positive(settings.get("patch_limit_on_one_side", 512))
        return cls._of(settings, merge, most, side, max_tokens)

    @classmethod
    def kimi_vl(cls, settings: Mapping[str, Any], max_tokens: int) -> PaddedProcessor:
        """As `kimi_k25`, under the names of Kimi-VL's files."""
        if not settings.get("pad_input"):
            raise ValueError("pad_input must be true")
        height, width = sides(settings.get("merge_kernel_size", 2))
        if height != width or height > _MAX_MERGE:
            raise ValueError(f"merge_kernel_size must be that of a square of at most {_MAX_MERGE}")
        most = positive(settings.get("in_token_limit", 4096))
        return cls._of(settings, height, most, _KIMI_VL_SIDE - height, max_tokens)

    @classmethod
    def _of(
        cls,
        settings: Mapping[str, Any],
        merge: int,
        most_patches: int,
        most_side: int,
        max_tokens: int,
    ) -> PaddedProcessor:
        patch = positive(settings.get("patch_size", 14))
        check_group(patch, merge, 1)
        return cls(
            Colors.of(settings, HALF, HALF),
            resampling(settings, Image.Resampling.BICUBIC),
            patch,
            merge,
            most_patches,
            most_side,
            max_tokens,
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        whole = math.prod(max(1, side // self.patch) for side in image.size)
        longest = self.most_side * self.patch
        scale = min(1.0, math.sqrt(self.most_patches / whole), longest / max(image.size))
        unit = self.patch * self.merge
        while True:
            width, height = (min(max(1, int(side * scale)), longest) for side in image.size)
            columns, rows = -(-width // unit), -(-height // unit)
            if rows * columns <= max(1, self.max_tokens):
                break
            scale /= _SMALLER
        canvas = Image.new("RGB", (columns * unit, rows * unit))
        canvas.paste(image.resize((width, height), self.resample))
        return cut_patches(self.colors(canvas)[None], self.patch, 1)


@dataclass(frozen=True, slots=True)
class AriaProcessor:
    """Resizes so that the longer side has `longest` pixels and the shorter at least `least`, keeps
    the shape about, and puts the image at the upper left of whole black patches. Patches are in
    rows."""

    colors: Colors
    resample: Image.Resampling
    patch: int
    longest: int
    least: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> AriaProcessor:
        """Reads the settings; the longer side says how many tokens an image has."""
        del max_tokens
        if settings.get("split_image", False):
            raise ValueError("split_image must be false")
        patch = positive(settings.get("patch_size", 14))
        longest, least = (
            positive(settings.get(f"{which}_image_size", default))
            for which, default in (("max", 980), ("min", 336))
        )
        if longest % patch or not least <= longest <= MAX_SIDE:
            raise ValueError(
                f"max_image_size is {longest} and min_image_size {least}; the larger must be whole"
                f" patches of {patch} pixels, at most {MAX_SIDE}"
            )
        resample = resampling(settings, Image.Resampling.BICUBIC)
        return cls(Colors.of(settings, HALF, HALF), resample, patch, longest, least)

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        scale = self.longest / max(image.size)
        width, height = (max(int(side * scale), self.least) for side in image.size)
        if image.width >= image.height:
            width = self.longest
        else:
            height = self.longest
        columns, rows = -(-width // self.patch), -(-height // self.patch)
        canvas = Image.new("RGB", (columns * self.patch, rows * self.patch))
        canvas.paste(image.resize((width, height), self.resample))
        return cut_patches(self.colors(canvas)[None], self.patch, 1)
