"""Implements `MediaEncoding` (media_encoding.py) by the front ends of a model's encoders.

encoding = LoadedEncoders(front_ends, encode)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.engine.encoded_media import (
    count_rows,
    form_of,
    item_prompts,
    placed_alone,
    rows_of,
)
from pagemill.engine.media import MediaFrontEnd
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.errors import from_engine
from pagemill.server.media_encoding import PARAM


@dataclass(frozen=True, slots=True)
class PlacedItems:
    """See `PlacedMedia`."""

    kind: MediaKind
    form: Mapping[str, Any]
    prompts: Sequence[RenderedPrompt]
    whole: RenderedPrompt
    """All items, and texts between them."""

    @property
    def num_rows(self) -> int:
        """That its encoder makes."""
        return count_rows(self.whole)

    def rows(self, tokens: Sequence[np.ndarray]) -> np.ndarray:
        """See `PlacedMedia.rows`."""
        return rows_of(self.whole, tokens)


class LoadedEncoders:
    """Those that this server has loaded."""

    def __init__(
        self, front_ends: Sequence[MediaFrontEnd], encode: Callable[[str], Sequence[int]]
    ) -> None:
        """`encode`: the token ids of a text with control tokens."""
        self._front_ends, self._encode = front_ends, encode

    async def place(self, media: PreparedMedia) -> PlacedItems:
        """See `MediaEncoding.place`."""
        try:
            placed = await asyncio.to_thread(placed_alone, media, self._front_ends, self._encode)
        except EngineError as error:
            raise from_engine(EngineError(error.code, error.message, PARAM)) from error
        return PlacedItems(media.kind, form_of(media), item_prompts(placed), placed)
