"""Images and audio that encoders without their language model encode: a prompt for each item.

placed = placed_alone(media, front_ends, encode)
rows = rows_of(placed, [llm_rows(prompt) for prompt in item_prompts(placed)])
embeds = {**form_of(media), "image_embeds": rows}     # as `media_of_embeds` takes it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from pagemill.engine.media import MediaFrontEnd, media_param, place_media
from pagemill.engine.media_rows import num_rows
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_embeds import EMBEDS_PARTS, GRID, SHAPE, embeds_param
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt


def check_kind(kind: MediaKind) -> None:
    """Raises EngineError, INVALID_ARGUMENT, for media that are not given as embeddings."""
    if embeds_param(kind) not in EMBEDS_PARTS:
        message = f"{media_param(kind)} are encoded by servers with the language model only"
        raise EngineError("INVALID_ARGUMENT", message, media_param(kind))


def placed_alone(
    media: PreparedMedia,
    front_ends: Sequence[MediaFrontEnd],
    encode: Callable[[str], Sequence[int]],
) -> RenderedPrompt:
    """The prompt of this image or audio and nothing else; see `place_media`.

    Raises:
        EngineError: INVALID_ARGUMENT: it does not fit the model.
    """
    for front_end in front_ends:
        placeholder = front_end.traits.placeholders.get(media.kind)
        if placeholder is not None:
            return place_media(RenderedPrompt.of([placeholder]), [media], front_ends, encode)
    named = media_param(media.kind)
    raise EngineError("INVALID_ARGUMENT", f"this model takes no {named}", named)


def item_prompts(placed: RenderedPrompt) -> list[RenderedPrompt]:
    """A prompt of each item of `placed`, without the texts between them."""
    return [
        RenderedPrompt(
            placed.token_ids[item.first_token : item.first_token + item.features.tokens],
            (structs.replace(item, first_token=0),),
        )
        for item in placed.media
    ]


def rows_of(placed: RenderedPrompt, tokens: Sequence[np.ndarray]) -> np.ndarray:
    """The rows that encoders have made, float32 [rows, width].

    Args:
        placed: of one image or audio.
        tokens: a row for each token of each of its items [tokens, width].
    """
    return np.concatenate(
        [
            _without_row_ends(rows, item.features.row_tokens)
            for item, rows in zip(placed.media, tokens, strict=True)
        ]
    )


def form_of(media: PreparedMedia) -> dict[str, Any]:
    """What rows need beside them."""
    form: dict[str, Any] = {SHAPE: list(media.values.shape)}
    return form if media.grid is None else form | {GRID: list(media.grid)}


def count_rows(placed: RenderedPrompt) -> int:
    """Those of all items."""
    return sum(num_rows(item.features) for item in placed.media)


def _without_row_ends(rows: np.ndarray, row_tokens: int) -> np.ndarray:
    if row_tokens == 0:
        return rows
    width = rows.shape[1]
    return rows.reshape(-1, row_tokens + 1, width)[:, :row_tokens].reshape(-1, width)
