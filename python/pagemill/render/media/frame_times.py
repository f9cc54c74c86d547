"""The times of a video's frames, drawn on them for models that read them there.

times = open_drawn_times(Path("ERNIE-4.5-VL-28B-A3B-PT"))
image = times(image, 3.5)      # "time: 00:00:03.50" in its upper left corner
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from pagemill.render.errors import RenderError
from pagemill.render.media.video_processors import processor_kind, video_settings

_KIND = "Ernie4_5_VLMoeVideoProcessor"
_FONT = "Roboto-Regular.ttf"  # of the processor's class
_SHARE = 10  # of the shorter side of a frame that a line is high, and of that, its border
_MAX_FONT_BYTES = 2**26
_GLYPHS = "time: 0123456789.:"
_WIDEST, _HIGHEST = 2 * len(_GLYPHS), 4  # what they may take, in the size of the font


@dataclass(frozen=True, slots=True)
class DrawnTimes:
    """Draws times as `transformers`' Ernie4_5_VLMoeVideoProcessor does, with a `font` (the bytes of
    a file of FreeType)."""

    font: bytes

    def __call__(self, image: Image.Image, seconds: float) -> Image.Image:
        """A copy of an RGB `image` with its time.

        Raises:
          RenderError: it is too small, or the font has no glyphs of its size.
        """
        size = min(image.size) // _SHARE
        if not size:
            raise RenderError(
                f"its frames have {image.width} x {image.height} pixels; both sides must have at"
                f" least {_SHARE}, since times are drawn on them"
            )
        drawn = image.copy()
        try:
            ImageDraw.Draw(drawn).text(
                (0, 0),
                _shown(seconds),
                font=ImageFont.truetype(io.BytesIO(self.font), size),
                fill=(0, 0, 0),
                stroke_width=size // _SHARE,
                stroke_fill=(255, 255, 255),
            )
        except (OSError, Image.DecompressionBombError) as error:
            raise RenderError(
                f"times cannot be drawn with its model's font: {error!s:.200}"
            ) from None
        return drawn


def open_drawn_times(folder: Path) -> DrawnTimes | None:
    """What the checkpoint in `folder` has drawn on frames; None if its processor draws nothing.

    Raises:
      RenderError: the font, which is beside its files, is missing or cannot be used.
    """
    stated = video_settings(folder)
    settings = {"draw_on_frames": True, "font": _FONT, **stated}
    if processor_kind(stated) != _KIND or not settings["draw_on_frames"]:
        return None
    name = str(settings["font"])
    file = folder / name
    if file.name != name or not file.is_file() or file.stat().st_size > _MAX_FONT_BYTES:
        raise RenderError(
            f"times are drawn on frames, but the font {name[:60]!r} is not beside the checkpoint:"
            " put it there, or set draw_on_frames of its video processor to false"
        )
    font = file.read_bytes()
    try:
        *_, width, height = ImageFont.truetype(io.BytesIO(font), _SHARE).getbbox(_GLYPHS)
    except (ImportError, OSError) as error:
        raise RenderError(f"the font {name[:60]!r} cannot be used: {error!s:.200}") from None
    if width > _WIDEST * _SHARE or height > _HIGHEST * _SHARE:
        raise RenderError(
            f"the font {name[:60]!r} cannot be used: its glyphs are larger than lines"
        )
    return DrawnTimes(font)


def _shown(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"time: {hours:02d}:{minutes:02d}:{rest:05.02f}"
