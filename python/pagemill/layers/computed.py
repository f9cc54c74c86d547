"""Constants of a program that are computed of a model's tensors when it is loaded.

taps = shares(weights, "time_mix_k", 768)
bias = row(weights, "bias", 0, (2, 64))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pagemill.layers.base import Weights
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

Floats = npt.NDArray[np.float32]


def shares(weights: Weights, name: str, length: int, *, of_previous: bool = False) -> Tensor:
    """1 - v and v of each entry v of a vector, or v and 1 - v if they are `of_previous`: f32
    [length, 2], the taps that mix a token with the previous one."""

    def taps(values: Floats) -> Floats:
        return np.stack([values, 1 - values] if of_previous else [1 - values, values], axis=1)

    return weights.computed(f"{name}.shares", (length, 2), {name: (length,)}, taps)


def small_columns(
    weights: Weights, name: str, shape: tuple[int, int], *, columns: Part, rows: Sequence[int]
) -> Tensor:
    """These columns of the small matrix `name`, of each the entries of `rows` one after the
    other: f32 [columns.size, len(rows)]."""

    def entries(matrix: Floats) -> Floats:
        return matrix[np.array(rows), columns.begin : columns.end].T

    key = f"{name}.columns{columns.begin}-{columns.end}"
    return weights.computed(key, (columns.size, len(rows)), {name: shape}, entries)


def row(weights: Weights, name: str, index: int, shape: tuple[int, int]) -> Tensor:
    """Row `index` of the small matrix `name` of `shape`: f32 [shape[1]]."""

    def entries(matrix: Floats) -> Floats:
        return matrix[index]

    return weights.computed(f"{name}[{index}]", shape[1:], {name: shape}, entries)


def resampled(
    weights: Weights, name: str, stored: tuple[int, ...], shares: Floats, shape: tuple[int, ...]
) -> Tensor:
    """`shares` [n, rows] times the tensor `name`, stored in the shape `stored`, as a matrix of so
    many rows: f32 of `shape`. For tables of a few megabytes."""

    def product(table: Floats) -> Floats:
        return shares @ table.reshape(shares.shape[1], -1)

    return weights.computed(f"{name}.resampled", shape, {name: stored}, product)
