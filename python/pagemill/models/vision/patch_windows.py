"""Attention within windows of an image, by columns behind those of each head.

The number of a patch's window is written in binary. For each digit b, queries have the columns b
and 1 - b, and keys 1 - b and b times a negative number: the products of a query and a key of one
window are 0, so that the score is the same to the bit; those of two windows add at least this
number, and the weight of such a key is 0. All columns are exact in f32, bf16 and f16.

    columns = window_columns(digits)          # digits: what `window_digits` makes, as features
    y = attend_in_windows(q, k, v, shape, rotary, columns)
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
_APART = -(2.0**14)  # times the scale of scores: far below the range of an exponential


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Columns [T, COLUMNS] of the heads of queries and of keys."""

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


def attend_in_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shape: AttentionShape,
    rotary: Rotary,
    columns: WindowColumns,
) -> Tensor:
    """q, k, v [T, heads * head_dim] -> [T, heads * head_dim]: each patch attends to those of its
    window. `rotary` turns q and k."""
    heads, dim = shape.heads, shape.head_dim
    q, k = rotary(
        _append_to_heads(q, columns.queries, shape), _append_to_heads(k, columns.keys, shape)
    )
    v = _append_to_heads(v, columns.keys, shape)  # as wide as keys; what comes of them is dropped
    y = ops.attention(q, k, v, scale=shape.scale, causal=False)
    return ops.split(y, dim, row_shapes=((heads * dim,), None))[0]


def _append_to_heads(x: Tensor, columns: Tensor, shape: AttentionShape) -> Tensor:
    """x [T, heads * head_dim], columns [T, C] -> [T, heads, head_dim + C]."""
    dim = shape.head_dim
    parts = [part for head in side_by_side(x, dim) for part in (head, columns)]
    return _joined(parts, (shape.heads, dim + columns.width))


def _joined(parts: Sequence[Tensor], row_shape: tuple[int, int]) -> Tensor:
    """At least two values side by side."""
    while len(parts) > MAX_INPUTS:
        groups = [parts[at : at + MAX_INPUTS] for at in range(0, len(parts), MAX_INPUTS)]
        parts = [ops.concat(*group) if len(group) > 1 else group[0] for group in groups]
    return ops.concat(*parts, row_shape=row_shape)
