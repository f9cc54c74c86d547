"""Bytes of an image file to pixels, within limits."""

from __future__ import annotations

import io
from typing import NamedTuple

from PIL import Image, ImageOps

from pagemill.render.errors import RenderError
from pagemill.render.media.jpeg_markers import START, JpegMarkers

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


Color = tuple[int, int, int]
"""Red, green and blue, from 0 to 255."""
WHITE: Color = (255, 255, 255)


class ImageLimits(NamedTuple):
    """Of an image file, and of the image in it."""

    max_bytes: int
    max_pixels: int


def decoded(data: bytes, limits: ImageLimits, background: Color = WHITE) -> Image.Image:
    """The first image in a file, in RGB, upright, what is transparent on `background`.

    Raises:
      RenderError: it is no PNG, JPEG, WebP or GIF, is damaged, or has too many pixels, or scans of
        a JPEG file: then nothing was decoded.
    """
    if data.startswith(START):  # Pillow would also read what is behind the file's end
        data = data[: JpegMarkers(data).read().end]
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return shown(image, limits, background)
    except RenderError:
        raise
    except Exception:  # decoders raise what they like
        raise RenderError(
            f"it cannot be decoded; files of type {', '.join(FORMATS)} are taken"
        ) from None


def shown(image: Image.Image, limits: ImageLimits, background: Color = WHITE) -> Image.Image:
    """An opened image as `decoded` returns it.

    Raises:
      RenderError: it has too many pixels: then nothing was decoded.
    """
    if image.width * image.height > limits.max_pixels:
        raise RenderError(
            f"it has {image.width} x {image.height} pixels; at most"
            f" {limits.max_pixels} are taken: send a smaller one"
        )
    image.load()
    return _rgb(ImageOps.exif_transpose(image), background)


def _rgb(image: Image.Image, background: Color) -> Image.Image:
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        opened = image.convert("RGBA")
        behind = Image.new("RGBA", opened.size, (*background, 255))
        return Image.alpha_composite(behind, opened).convert("RGB")
    return image.convert("RGB")
