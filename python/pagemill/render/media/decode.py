"""Bytes of an image file to pixels, within limits."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image, ImageOps

from pagemill.render.errors import RenderError
from pagemill.render.media.jpeg_markers import START, JpegEnd, JpegMarkers
from pagemill.render.media.stoppable_file import StoppableFile, check_wanted
from pagemill.render.stop import Stop

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
# A scan of a JPEG file takes 25 ms for 2^25 pixels and may have 50 bytes, and the decoder sees no
# stop within what it is given at a time. Pillow gives it 64 KiB.
_FEW_SCANS = 16
_BLOCK_OF_SCANS = 512
_BAND_PIXELS = 2**20
"""Of what is converted at a time: Pillow holds the GIL meanwhile, 0.6 s for 2^25 pixels."""


Color = tuple[int, int, int]
"""Red, green and blue, from 0 to 255."""
WHITE: Color = (255, 255, 255)


class ImageLimits(NamedTuple):
    """Of an image file, and of the image in it."""

    max_bytes: int
    max_pixels: int


def decoded(
    data: bytes, limits: ImageLimits, background: Color = WHITE, stop: Stop | None = None
) -> Image.Image:
    """The first image in a file, in RGB, upright, what is transparent on `background`. `stop` ends
    it, after which what is raised says nothing about the file; a WebP file is decoded to its end.

    Raises:
      RenderError: it is no PNG, JPEG, WebP or GIF, is damaged, or has too many pixels, or scans of
        a JPEG file: then nothing was decoded.
    """
    stop = stop or Stop()
    file = JpegEnd(None, 0)
    if data.startswith(START):  # Pillow would also read what is behind the file's end
        file = JpegMarkers(data).read()
    try:
        with Image.open(StoppableFile(data[: file.end], stop), formats=FORMATS) as image:
            if file.scans > _FEW_SCANS:
                image.decodermaxblock = _BLOCK_OF_SCANS
            return shown(image, limits, background, stop)
    except RenderError:
        raise
    except Exception:  # decoders raise what they like
        raise RenderError(
            f"it cannot be decoded; files of type {', '.join(FORMATS)} are taken"
        ) from None


def shown(
    image: Image.Image,
    limits: ImageLimits,
    background: Color = WHITE,
    stop: Stop | None = None,
) -> Image.Image:
    """An opened image as `decoded` returns it; `stop` is its, too.

    Raises:
      RenderError: it has too many pixels: then nothing was decoded.
    """
    if image.width * image.height > limits.max_pixels:
        raise RenderError(
            f"it has {image.width} x {image.height} pixels; at most"
            f" {limits.max_pixels} are taken: send a smaller one"
        )
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode == "RGB" and not _is_transparent(upright):
        return upright
    colors = Image.new("RGB", upright.size)
    rows = max(_BAND_PIXELS // upright.width, 1)
    for top in range(0, upright.height, rows):
        check_wanted(stop or Stop())
        band = upright.crop((0, top, upright.width, min(top + rows, upright.height)))
        colors.paste(_rgb(band, background), (0, top))
    return colors


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def _rgb(image: Image.Image, background: Color) -> Image.Image:
    if _is_transparent(image):
        opened = image.convert("RGBA")
        behind = Image.new("RGBA", opened.size, (*background, 255))
        return Image.alpha_composite(behind, opened).convert("RGB")
    return image.convert("RGB")
