"""A prompt as the engine reads it: token ids, and the media that some of them stand for.

    prompt = RenderedPrompt.of([1, 15043, 3186])
    prompt = RenderedPrompt(token_ids, (MediaItem(sha256, first_token, features),))

Positions are those of each item: they follow from the item alone, and text between items counts on
from them (cc/step/media_item.h). Everything here is frozen, is checked when it is created, and
travels between processes; arrays are not copied and must not be changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from pagemill.inputs.media_kind import MediaKind

MAX_MEDIA_ITEMS = 4096
ROW_END = -1
"""In a placement: the embedding that an encoder has for the ends of rows."""
_GRID_DIMS = 3  # time, row and column
_INT32 = np.iinfo(np.int32)

InputPart = Literal["more", "turn", "last"]
"""What follows a chunk (cc/scheduler/input_chunk.h): more of its turn, a turn, or nothing."""


class GridPositions(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """In time, row and column, int32 [n, 3]: of an item's `rows` in the encoder, and of its
    `tokens`, relative to its start; `next` is the position of the token after it."""

    rows: np.ndarray
    tokens: np.ndarray
    next: int

    def __post_init__(self) -> None:
        """Raises ValueError for arrays of another type or shape."""
        _check("positions of rows", self.rows, np.int32, (None, _GRID_DIMS))
        _check("positions of tokens", self.tokens, np.int32, (None, _GRID_DIMS))

    @classmethod
    def in_order(cls, rows: np.ndarray, tokens: int) -> GridPositions:
        """Those of an item whose `tokens` count up as tokens of text do."""
        order = np.arange(tokens, dtype=np.int32)[:, None]
        return cls(rows, np.repeat(order, _GRID_DIMS, axis=1), tokens)


class MediaFeatures(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """An encoder's input for an item, float32 [rows, channels], the number of `tokens` that the
    item stands for, and their positions if it has a grid. Behind each `row_tokens` embeddings, if
    not 0, is a token that keeps its own, which counts among `tokens`. `placement`, int32 [tokens],
    has the embedding of each token, as the encoder counts them, or ROW_END; None: all in order.
    With `shares`, float32 from 0 to 1, both are [tokens, n], with n at most 4: a token is the sum
    of n embeddings, each times its share. `encoder` is the number of the encoder among those that
    the model is served with."""

    rows: np.ndarray
    tokens: int
    positions: GridPositions | None = None
    row_tokens: int = 0
    placement: np.ndarray | None = None
    shares: np.ndarray | None = None
    encoder: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for features or a placement of another type or shape."""
        _check("features", self.rows, np.float32, (None, None))
        if self.placement is not None:
            each = () if self.shares is None else (None,)
            _check("places", self.placement, np.int32, (self.tokens, *each))
        if self.shares is not None:
            places = None if self.placement is None else self.placement.shape[1]
            _check("shares", self.shares, np.float32, (self.tokens, places))


class MediaItem(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """Tokens of the prompt, from `first_token` on, that stand for `features`. Items of equal
    `content_id` are encoded once, and have equal positions. `kind` is that of the image, audio or
    video that the item is of; None: it is of a text, or of embeddings."""

    content_id: str
    first_token: int
    features: MediaFeatures
    kind: MediaKind | None = None


class RenderedPrompt(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """`token_ids`, int32 [tokens], with all placeholders of `media`, which are in the order of
    their tokens. `second_text_start` is the first token of the second of two texts that a model
    with token types reads together; 0: there is one. The engine compares all with the model."""

    token_ids: np.ndarray
    media: Annotated[tuple[MediaItem, ...], msgspec.Meta(max_length=MAX_MEDIA_ITEMS)] = ()
    second_text_start: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for token ids of another type or shape, and for too many items."""
        _check("token ids", self.token_ids, np.int32, (None,))
        if len(self.media) > MAX_MEDIA_ITEMS:
            raise ValueError(
                f"a prompt has {len(self.media)} media items; at most {MAX_MEDIA_ITEMS} are taken"
            )

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.token_ids)

    @classmethod
    def of(cls, token_ids: Sequence[int]) -> RenderedPrompt:
        """A prompt of text.

        Raises:
            OverflowError: a token id does not fit 32 bits.
        """
        wide = np.asarray(token_ids, dtype=np.int64)
        if wide.size and not (_INT32.min <= wide.min() and wide.max() <= _INT32.max):
            raise OverflowError("a token id does not fit 32 bits")
        return cls(wide.astype(np.int32))


class InputChunk(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """Input that is appended to a request with `streaming_input`. Items of `prompt.media` count
    from its first token; it may be empty at the end of a turn that had input before."""

    prompt: RenderedPrompt
    part: InputPart = "last"


def _check(what: str, array: np.ndarray, dtype: type, shape: tuple[int | None, ...]) -> None:
    fits = array.dtype == dtype and array.ndim == len(shape)
    if fits and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        return
    wanted = ", ".join("n" if size is None else str(size) for size in shape)
    raise ValueError(
        f"{what} are {array.dtype} {list(array.shape)}; they must be {np.dtype(dtype)} [{wanted}]"
    )
