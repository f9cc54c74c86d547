"""Attention within windows of an image, or to all patches but a margin, by columns behind those of
each head.

The number of a patch's window is written in binary. For each digit b, queries have the columns b
and 1 - b, and keys 1 - b and b times a negative number: the products of a query and a key of one
window are 0, so that the score is the same to the bit; those of two windows add at least this
number, and the weight of such a key is 0. All columns are exact in f32, bf16 and f16.

    columns = window_columns(digits)          # digits: what `window_digits` makes, as features
    y = attend_in_windows(q, k, v, shape, rotary, columns)

For a margin, queries have a column of ones, and keys the negative number if they are of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagemill import ops
from pagemill.layers.attention import AttentionShape
from pagemill.layers.media_rows import side_by_side
from pagemill.layers.rotary import Rotary
from pagemill.ops.concat import MAX_INPUTS
from pagemill.ops.trace import Tensor

_BITS = 16
MAX_WINDOWS = 2**_BITS
COLUMNS = 2 * _BITS
MARGIN_COLUMNS = 2
_APART = -(2.0**14)  # times the scale of scores: far below the range of an exponential


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Columns [T, C], equally many, of the heads of queries and of keys."""

    queries: Tensor
    keys: Tensor


def window_digits(windows: np.ndarray) -> np.ndarray:
    """Numbers of windows [patches], below MAX_WINDOWS -> f32 [patches, COLUMNS]: their digits, and
    1 minus each."""
    digits = windows[:, None] >> np.arange(_BITS) & 1
    return np.concatenate([digits, 1 - digits], 1, dtype=np.float32)


def window_columns(digits: Tensor) -> WindowColumns:
    """The columns that the `digits` [T, COLUMNS] of windows stand for."""
    set_bits, clear_bits = ops.split(digits, _BITS)
    return WindowColumns(digits, ops.scale(ops.concat(clear_bits, set_bits), _APART))


def margin_columns(margin: Tensor) -> WindowColumns:
    """The columns for `margin` [T, MARGIN_COLUMNS]: ones, and whether a patch is of a margin."""
    ones, is_margin = ops.split(margin, 1)
    return WindowColumns(ones, ops.scale(is_margin, _APART))


def attend_in_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shape: AttentionShape,
    rotary: Rotary | None,
    columns: WindowColumns,
) -> Tensor:
    """q [T, heads * head_dim], k, v [T, kv_heads * head_dim] -> [T, heads * head_dim]: each patch
    attends to those that the columns leave it. `rotary` turns q and k."""
    heads, dim = shape.heads, shape.head_dim
    q, k = _append_to_heads(q, columns.queries, dim), _append_to_heads(k, columns.keys, dim)
    if rotary is not None:
        q, k = rotary(q, k)
    v = _append_to_heads(v, columns.keys, dim)  # as wide as keys; what comes of them is dropped
    y = ops.attention(q, k, v, scale=shape.scale, causal=False)
    return ops.split(y, dim, row_shapes=((heads * dim,), None))[0]


def _append_to_heads(x: Tensor, columns: Tensor, dim: int) -> Tensor:
    """x [T, heads * dim], columns [T, C] -> [T, heads, dim + C]."""
    parts = [part for head in side_by_side(x, dim) for part in (head, columns)]
    return _joined(parts, (x.width // dim, dim + columns.width))


def _joined(parts: Sequence[Tensor], row_shape: tuple[int, int]) -> Tensor:
    """At least two values side by side."""
    while len(parts) > MAX_INPUTS:
        groups = [parts[at : at + MAX_INPUTS] for at in range(0, len(parts), MAX_INPUTS)]
        parts = [ops.concat(*group) if len(group) > 1 else group[0] for group in groups]
    return ops.concat(*parts, row_shape=row_shape)
