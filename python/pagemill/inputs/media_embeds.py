"""Images and audio given as the rows that their encoder would have made of them.

    media = media_of_embeds("image", rows, shape=None, grid=(1, 16, 12))
    media.embeddings            # [rows, width]
    media.values                # zeros of the shape that the encoder would have read

Which tokens, texts and positions belong to the rows follows from that shape and the grid, as it
does for media that are encoded here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia

EMBEDS_PARTS: Mapping[str, MediaKind] = {"audio_embeds": "audio", "image_embeds": "image"}
"""Types of parts, which have a field of the same name: rows, or an object with more."""
GRID, SHAPE = "image_grid_thw", "shape"
_MAX_DIMS = 4
_MAX_VALUES = 2**25  # as many as fit in the media of a prompt: 128 MiB in f32


def embeds_param(kind: MediaKind) -> str:
    """The name of the rows of an image or audio."""
    return f"{kind}_embeds"


def unknown_fields(kind: MediaKind, fields: Mapping[str, Any]) -> list[str]:
    """The names in the object of a part that mean nothing."""
    known = [embeds_param(kind), SHAPE, *([GRID] if kind == "image" else [])]
    return sorted(str(name)[:40] for name in fields.keys() - known)


def media_of_embeds(
    kind: MediaKind, rows: np.ndarray, shape: Any = None, grid: Any = None
) -> PreparedMedia:
    """The image or audio with these rows.

    Args:
        kind: of the media.
        rows: float32 [rows, width].
        shape: of what the encoder would read (`PreparedMedia.values`); None: it follows from the
            grid, or the rows are all there is.
        grid: of what the encoder would read (`PreparedMedia.grid`); or a list of one.

    Raises:
        ValueError: the rows are no matrix, or the shape or the grid is none.
    """
    if rows.ndim != 2 or not rows.size:
        raise ValueError(
            f"embeddings have the shape {list(rows.shape)}; they must be [rows, width]"
        )
    stand_in = np.empty(0, np.float32)
    if shape is not None:
        stand_in = zeros_of(_positive(shape, SHAPE, range(1, _MAX_DIMS + 1)))
    if grid is not None:
        inner = grid[0] if _is_list(grid) and len(grid) == 1 else grid
        time, height, width = _positive(inner, GRID, range(3, 4))
        return PreparedMedia(kind, stand_in, (time, height, width), embeddings=rows)
    return PreparedMedia(kind, stand_in, embeddings=rows)


def zeros_of(shape: Sequence[int]) -> np.ndarray:
    """Zeros [*shape] that take no memory.

    Raises:
        ValueError: they are more than media of a prompt may have.
    """
    count = math.prod(shape)
    if count > _MAX_VALUES:
        raise ValueError(f"media of {count} values are too large; at most {_MAX_VALUES} are taken")
    return np.broadcast_to(np.float32(0), tuple(shape))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _positive(given: Any, name: str, lengths: range) -> list[int]:
    values = list(given) if _is_list(given) else []
    if len(values) in lengths and all(type(each) is int and 0 < each < 2**31 for each in values):
        return values
    count = "3" if len(lengths) == 1 else f"1 to {_MAX_DIMS}"
    raise ValueError(f"`{name}` must be {count} positive numbers")
