"""Items of images and audio that are given as rows of embeddings.

stand_in = with_stand_in(media, traits, divides=False)      # as if it were to be encoded
items = items_of_rows(items, rows, number, has_grid=False)  # what the model reads instead
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pagemill.inputs.media_embeds import GRID, SHAPE, embeds_param, zeros_of
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.models.base import MediaTraits
from pagemill.ops.program import GRID_DIMS

_MOST_EXTRA = 4
"""Times as many patches as rows are made of may be in a grid: some are left out."""


def with_stand_in(media: PreparedMedia, traits: MediaTraits, *, divides: bool) -> PreparedMedia:
    """`media` with zeros in place of what the encoder would read, unless its rows are all there is.

    Args:
        media: with `embeddings`.
        traits: of the encoder that would read it.
        divides: whether the model divides media into items.

    Raises:
        ValueError: the rows are not as wide as those of the encoder, or it needs a shape.
    """
    assert media.embeddings is not None
    width = media.embeddings.shape[1]
    if width != traits.width:
        raise ValueError(
            f"rows of embeddings have {width} numbers; those of this model have {traits.width}"
        )
    if media.values.size:
        return media
    if media.grid is not None:
        patches, rows = math.prod(media.grid), len(media.embeddings)
        stand_in = zeros_of((patches, traits.channels))
        # Before work that grows with the patches; the exact number follows from the layout.
        if patches > _MOST_EXTRA * rows * max(1, traits.rows // traits.tokens):
            raise ValueError(
                f"there are {rows} rows of embeddings, and {patches} patches in `{GRID}`"
            )
        return media._replace(values=stand_in)
    if divides or traits.grid or traits.row_ends is not None or traits.placed or traits.tiles:
        needed = f"`{SHAPE}` or `{GRID}`" if media.kind == "image" else f"`{SHAPE}`"
        raise ValueError(
            f"`{embeds_param(media.kind)}` of this model need {needed}, too, from which tokens and"
            " positions follow; a server with --mm-encoder-only answers with both"
        )
    return media


def whole_item(rows: np.ndarray, traits: MediaTraits) -> MediaFeatures:
    """The item of media whose rows are all there is.

    Raises:
        ValueError: media of this model have another number of rows.
    """
    if not traits.any_size and len(rows) != traits.tokens:
        raise ValueError(
            f"there are {len(rows)} rows of embeddings; media of this model have {traits.tokens}"
        )
    return MediaFeatures(rows, len(rows))


def num_rows(features: MediaFeatures) -> int:
    """How many rows an encoder makes of an item."""
    if features.row_tokens == 0:
        return features.tokens
    return features.tokens - features.tokens // (features.row_tokens + 1)


def items_of_rows(
    items: Sequence[MediaFeatures], rows: np.ndarray, number: int, *, has_grid: bool
) -> list[MediaFeatures]:
    """Items as the encoder of rows reads them, whose number is `number`: their `rows` in order,
    and positions if the model's tokens have several.

    Raises:
        ValueError: `items` have more or fewer rows.
    """
    counts = [num_rows(each) for each in items]
    if sum(counts) != len(rows):
        raise ValueError(
            f"there are {len(rows)} rows of embeddings; media of this shape have {sum(counts)}"
        )
    ends = np.cumsum(counts)
    return [
        MediaFeatures(
            np.ascontiguousarray(rows[end - count : end]),
            each.tokens,
            _positions(each, count) if has_grid else None,
            each.row_tokens,
            encoder=number,
        )
        for each, count, end in zip(items, counts, ends, strict=True)
    ]


def _positions(features: MediaFeatures, count: int) -> GridPositions:
    places = np.zeros((count, GRID_DIMS), np.int32)  # the encoder of rows reads none
    if features.positions is None:
        return GridPositions.in_order(places, features.tokens)
    return GridPositions(places, features.positions.tokens, features.positions.next)
