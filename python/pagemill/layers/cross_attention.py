"""Attention of decoders whose first tokens stand for the rows of an encoder.

    rows = DecoderRows.of(weights, text_rows, media.tokens, token_ids, width)
    x = ops.select_rows(x, rows.text)                                   # [text_rows, H]
    ops.kv_write(rows.joined(k, media_k), rows.joined(v, media_v), cache)
    own = attend(rows, q, cache, shape.scale)                           # among text
    y = attend(rows, y, cache, shape.scale, cross=True)                 # to the encoder's rows

A layer's cache has keys and values of its cross attention at the places of media, and those of its
own attention at the places of text (decision 0118). How many places a request's media have, the
step's array `encoder_ends` says (decision 0146). The layers compute nothing else of media.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.trace import Cache, Tensor


@dataclass(frozen=True, slots=True)
class DecoderRows:
    """The tokens of a step: `text` i32 [text_rows] are the decoder's, `media` i32 [media_rows]
    stand for the encoder's rows. `other` [tokens, width] are rows of no meaning, the same ones for
    all tokens `ids`, i32 [tokens]."""

    text: Tensor
    media: Tensor
    ids: Tensor
    other: Tensor

    @classmethod
    def of(cls, weights: Weights, text: Tensor, media: Tensor, ids: Tensor, width: int) -> Self:
        """Those of a step with the tokens `ids`, whose ops exchange `width` numbers a token."""
        zeros = weights.constant(f"no_row.{width}", [[0.0] * width])
        return cls(text, media, ids, ops.embedding(ids, zeros, outside=0))

    def with_width(self, weights: Weights, width: int) -> DecoderRows:
        """The same rows, for ops that exchange `width` numbers a token."""
        return self.of(weights, self.text, self.media, self.ids, width)

    def spread(self, x: Tensor) -> Tensor:
        """x [text_rows, ...] -> [tokens, ...]; the rows of media have no meaning."""
        return ops.scatter_rows(self.other, x, self.text)

    def joined(self, x: Tensor, y: Tensor) -> Tensor:
        """x [text_rows, ...], y [media_rows, ...] -> [tokens, ...]."""
        return ops.scatter_rows(self.spread(x), y, self.media)


def attend(
    rows: DecoderRows,
    q: Tensor,
    cache: Cache,
    scale: float,
    *,
    cross: bool = False,
    biases: Tensor | None = None,
) -> Tensor:
    """q [text_rows, heads, head_dim] -> [text_rows, heads * head_dim]: the attention to the first
    tokens of a request, which are media, if `cross`, else to those behind them. `biases` are those
    of `ops.paged_attention`."""
    attended = ops.paged_attention(
        rows.spread(q),
        cache,
        scale=scale,
        encoder_keys=cross,
        decoder_keys=not cross,
        biases=biases,
    )
    return ops.select_rows(attended, rows.text)
