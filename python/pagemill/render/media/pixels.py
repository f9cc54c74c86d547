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
_COLORS = -1e6, 1e6
_POSITIVE = 1e-6, 1e6


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
        """Reads the settings; `mean` and `std` are the processor's defaults.

        Raises:
            ValueError: one is not a number, or three, by which pixels stay finite.
        """
        scales, normalizes = (settings.get(f"do_{what}", True) for what in ("rescale", "normalize"))
        factor = settings.get("rescale_factor", 1 / 255) if scales else 1.0
        means = settings.get("image_mean", mean) if normalizes else (0.0,) * 3
        stds = settings.get("image_std", std) if normalizes else (1.0,) * 3
        return cls(
            _number("rescale_factor", factor, _POSITIVE),
            _channels("image_mean", means, _COLORS),
            _channels("image_std", stds, _POSITIVE),
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        """float32 [3, height, width]."""
        pixels = np.asarray(image).transpose(2, 0, 1).astype(np.float32) * np.float32(self.scale)
        return (pixels - self.mean) / self.std


def _channels(key: str, value: Any, bounds: tuple[float, float]) -> np.ndarray:
    """f32 [3, 1, 1]: a number for red, green and blue."""
    listed = as_array(value) or []
    if len(listed) != 3:
        raise ValueError(f"{key} must be three numbers")
    return np.array([_number(key, each, bounds) for each in listed], np.float32).reshape(3, 1, 1)


def _number(key: str, value: Any, bounds: tuple[float, float]) -> float:
    """`value` of the setting `key`; raises ValueError if it is not a number within `bounds`."""
    least, most = bounds
    # The comparison is false for NaN, too.
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{key} is {value!r:.60}; it must be a number from {least:g} to {most:g}")
    return float(value)


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
        raise ValueError(f"{value!r:.60} is not a positive number")
    return value


def sides(value: Any) -> tuple[int, int]:
    """Height and width of an object, or of a square."""
    named = as_object(value)
    if named is not None:
        return positive(named["height"]), positive(named["width"])
    listed = as_array(value) or [value, value]
    if len(listed) != 2:
        raise ValueError(f"{value!r:.60} is not a height and a width")
    return positive(listed[0]), positive(listed[1])
