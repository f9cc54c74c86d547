"""Encoders without a language model, and files of images without a format: an image has one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.config import MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.stop import Stop
from pagemill.server.media import MediaReader

PLACEHOLDER = 0xF1


class FakeFiles:
    """Implements `MediaFiles`: pixels are bytes of a file."""

    max_bytes = 1000

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """As many pixels as bytes."""
        del stop
        return PreparedMedia("image", np.frombuffer(data, np.uint8).astype(np.float32))

    def read_opened(self, media: Any, /) -> PreparedMedia:
        """Files only."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class FakePlaced:
    """Implements `PlacedMedia`: one token."""

    form: Mapping[str, Any]
    kind: MediaKind = "image"
    prompts: Sequence[RenderedPrompt] = (RenderedPrompt.of([PLACEHOLDER]),)
    num_rows: int = 1

    def rows(self, tokens: Sequence[np.ndarray]) -> np.ndarray:
        """What the engine computed."""
        (row,) = tokens
        return row


class FakeEncoding:
    """Implements `MediaEncoding`."""

    async def place(self, media: PreparedMedia) -> FakePlaced:
        """One token for any image."""
        return FakePlaced({"shape": list(media.values.shape)})


def fake_encoder() -> tuple[MediaReader, FakeEncoding]:
    """Reads images, and places them."""
    files = MediaReader(MediaConfig(), {"image": FakeFiles()}, lambda prompt, _: prompt)
    return files, FakeEncoding()
