"""What a server of encoders without their language model does with media: each image or audio
becomes prompts of its items, whose rows are its embeddings.

placed = await encoding.place(prepared)
rows = placed.rows([pooled(prompt) for prompt in placed.prompts])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt

PARAM = "input"
"""The field of requests that has media."""


class PlacedMedia(Protocol):
    """One image or audio: a prompt for each of its items, and the `form` that its rows need beside
    them, of which there are `num_rows`."""

    @property
    def kind(self) -> MediaKind: ...

    @property
    def form(self) -> Mapping[str, Any]: ...

    @property
    def prompts(self) -> Sequence[RenderedPrompt]: ...

    @property
    def num_rows(self) -> int: ...

    def rows(self, tokens: Sequence[np.ndarray]) -> np.ndarray:
        """Its embeddings, float32 [rows, width], of what each of `prompts` has for its tokens."""
        ...


class MediaEncoding(Protocol):
    """Places media in prompts without texts. Belongs to one event loop."""

    async def place(self, media: PreparedMedia) -> PlacedMedia:
        """One image or audio.

        Raises:
            ApiError: 400: it does not fit the model.
        """
        ...
