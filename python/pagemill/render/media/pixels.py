"""What processors share: bytes to numbers, and checks of settings and images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
_MAX_ASPECT = 200
_MAX_RESIZED_PIXELS = 2**26


@dataclass(frozen=True, slots=True)
class Colors:
    """From bytes to numbers: scaled, and then normalized per channel."""

    scale: float
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(
        cls,
        settings: Mapping[str, Any],
        mean: tuple[float, ...] = CLIP_MEAN,
        std: tuple[float, ...] = CLIP_STD,
    ) -> Colors:
        """Reads the settings; `mean` and `std` are the processor's defaults."""
        scales, normalizes = (settings.get(f"do_{what}", True) for what in ("rescale", "normalize"))
        mean = settings.get("image_mean", mean) if normalizes else (0.0,) * 3
        std = settings.get("image_std", std) if normalizes else (1.0,) * 3
        return cls(
            float(settings.get("rescale_factor", 1 / 255)) if scales else 1.0,
            np.array(mean, np.float32).reshape(3, 1, 1),
            np.array(std, np.float32).reshape(3, 1, 1),
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        """float32 [3, height, width]."""
        pixels = np.asarray(image).transpose(2, 0, 1).astype(np.float32) * np.float32(self.scale)
        return (pixels - self.mean) / self.std


def check_aspect(image: Image.Image) -> None:
    """Long and thin images would become large ones."""
    short, long = sorted(image.size)
    if long > _MAX_ASPECT * short:
        raise RenderError(f"its longer side is more than {_MAX_ASPECT} times the shorter one")


def short_side_resized(image: Image.Image, edge: int, resample: Image.Resampling) -> Image.Image:
    """The image with `edge` pixels along its shorter side, and of the same shape.

    Raises:
        RenderError: it would have too many pixels.
    """
    short, long = sorted(image.size)
    longer = int(edge * long / short)
    if edge * longer > _MAX_RESIZED_PIXELS:
        raise RenderError(
            f"it would have {edge} x {longer} pixels (size of its processor), more than"
            f" {_MAX_RESIZED_PIXELS}"
        )
    size = (edge, longer) if image.width <= image.height else (longer, edge)
    return image.resize(size, resample)


def center(image: Image.Image, height: int, width: int) -> Image.Image:
    """The middle of an image.

    Raises:
        RenderError: the image is smaller.
    """
    if height > image.height or width > image.width:
        raise RenderError(f"it is smaller than {width} x {height} pixels")
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def resampling(settings: Mapping[str, Any], default: Image.Resampling) -> Image.Resampling:
    """How images are resized; raises ValueError."""
    return Image.Resampling(settings.get("resample", default))


def positive(value: Any) -> int:
    """`value`; raises ValueError if it is no whole number > 0."""
    if type(value) is not int or not 0 < value < 2**31:
        raise ValueError(f"{value!r} is not a positive number")
    return value


def sides(value: Any) -> tuple[int, int]:
    """Height and width of an object, or of a square."""
    named = as_object(value)
    if named is not None:
        return positive(named["height"]), positive(named["width"])
    listed = as_array(value) or [value, value]
    if len(listed) != 2:
        raise ValueError(f"{value!r} is not a height and a width")
    return positive(listed[0]), positive(listed[1])
