"""Images and sounds of requests, made at random, so that no cache of the server has them."""

from __future__ import annotations

import base64
import io
import random
import re
import wave
from dataclasses import dataclass

from pagemill.config import ConfigError, Range, option
from pagemill.config.fields import check

_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
_LARGEST_SIDE = 16384
_DOT = 8  # pixels; noise of single ones is larger than photographs are as files
_SAMPLES_PER_S = 16_000


@dataclass(frozen=True, slots=True)
class MediaConfig:
    """Media: what requests have beside their texts."""

    num_images: int = option(
        0, "Images of each chat or response, of random dots.", allowed=Range(0, 64)
    )
    image_size: str = option("448x448", "Width and height of these images, in pixels.")
    audio_seconds: float = option(
        10.0, "Sound of each transcription: noise.", unit="s", allowed=Range(0.1, 3600)
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        self.image_sides()

    def image_sides(self) -> tuple[int, int]:
        """Width and height.

        Raises:
          ConfigError: they are not as 448x448.
        """
        match = _SIZE.fullmatch(self.image_size)
        sides = (int(match[1]), int(match[2])) if match else (0, 0)
        if not all(1 <= side <= _LARGEST_SIDE for side in sides):
            raise ConfigError(
                f"--image-size: {self.image_size!r:.30} is no size as 448x448, with sides up to"
                f" {_LARGEST_SIDE}"
            )
        return sides


def random_image(rng: random.Random, width: int, height: int) -> str:
    """A data URL of a JPEG file."""
    from PIL import Image

    columns, rows = -(-width // _DOT), -(-height // _DOT)
    dots = Image.frombytes("RGB", (columns, rows), rng.randbytes(columns * rows * 3))
    file = io.BytesIO()
    dots.resize((width, height), Image.Resampling.NEAREST).save(file, "JPEG")
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def random_sound(rng: random.Random, seconds: float) -> bytes:
    """A WAV file of one channel, 16 bits a sample."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(_SAMPLES_PER_S)
        out.writeframes(rng.randbytes(2 * round(seconds * _SAMPLES_PER_S)))
    return file.getvalue()
