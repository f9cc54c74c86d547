"""Image files as an encoder takes them.

files = ImageFiles.open(MediaConfig(), Path("llava-1.5-7b-hf"), max_tokens=2048)
pixels = files.read(data).values
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pagemill.config import MediaConfig
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.media.decode import WHITE, Color, ImageLimits, decoded, shown
from pagemill.render.media.processors import ImageProcessor, open_processor
from pagemill.render.stop import Stop


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Implements `MediaFiles`."""

    limits: ImageLimits
    processor: ImageProcessor
    background: Color = WHITE

    @classmethod
    def open(cls, config: MediaConfig, folder: Path, max_tokens: int) -> ImageFiles:
        """See `open_files`."""
        return cls(
            ImageLimits(config.max_image_bytes, config.max_image_pixels),
            open_processor(folder, max_tokens, config.mm_processor_kwargs),
            config.background,
        )

    @property
    def max_bytes(self) -> int:
        """See `MediaFiles`."""
        return self.limits.max_bytes

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """See `MediaFiles.read`."""
        return self._prepared(decoded(data, self.limits, self.background, stop))

    def read_opened(self, image: Image.Image) -> PreparedMedia:
        """See `MediaFiles.read_opened`; an image of Pillow."""
        return self._prepared(shown(image, self.limits, self.background))

    def _prepared(self, image: Image.Image) -> PreparedMedia:
        prepared = self.processor(image)
        if isinstance(prepared, tuple):
            return PreparedMedia("image", *prepared)
        return PreparedMedia("image", prepared)
