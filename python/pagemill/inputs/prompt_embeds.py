"""Prompts as rows of embeddings in place of token ids.

prompt = embeds_prompt(rows, width=576)
"""

from __future__ import annotations

import hashlib

import numpy as np

from pagemill.inputs.rendered_prompt import (
    MAX_MEDIA_ITEMS,
    MediaFeatures,
    MediaItem,
    RenderedPrompt,
)

ROWS_PER_ITEM = 16
"""Prompts are divided into items of as many rows, so that those which begin alike share cached KV
up to the item in which they differ."""
MAX_ROWS = ROWS_PER_ITEM * MAX_MEDIA_ITEMS
_PLACEHOLDER = 0  # any token id


def check_shape(shape: tuple[int, ...], width: int) -> None:
    """Checks that an array can be a prompt of a model whose embeddings have `width` numbers.

    Raises:
        ValueError: it cannot; the message is a sentence about the rows.
    """
    if len(shape) != 2 or shape[1] != width:
        raise ValueError(f"have the shape {list(shape)}; this model takes [tokens, {width}]")
    if not 1 <= shape[0] <= MAX_ROWS:
        raise ValueError(f"are {shape[0]} rows; 1 to {MAX_ROWS} are taken")


def embeds_prompt(rows: np.ndarray, width: int) -> RenderedPrompt:
    """The prompt whose tokens have the embeddings `rows`, float32 [tokens, width].

    Raises:
        ValueError: they do not fit the model, or are not finite; the message is a sentence about
            the rows.
    """
    check_shape(rows.shape, width)
    if not np.isfinite(rows).all():
        raise ValueError("have numbers that are not finite")
    parts = (rows[at : at + ROWS_PER_ITEM] for at in range(0, len(rows), ROWS_PER_ITEM))
    items = tuple(
        MediaItem(
            hashlib.sha256(part.tobytes()).hexdigest(),
            number * ROWS_PER_ITEM,
            MediaFeatures(part, len(part)),
        )
        for number, part in enumerate(parts)
    )
    return RenderedPrompt(np.full(len(rows), _PLACEHOLDER, np.int32), items)
