"""Learned embeddings of places in a square, for images of any size: each cell of an image reads
those around it, times shares that are a product of the shares of rows and of columns.

    table = PlaceTable.of(2304, "num_position_embeddings", linear_shares)
    shares = table.shares(cells, height, width)
    x = place_embeddings(weights, "pos_embed", shares, hidden_size)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import ModelConfigError
from pagemill.ops.trace import Tensor

MAX_SIDE = 256
"""Places in a row."""
_CUBIC = np.float32(-0.75)  # the kernel's slope
_SMOOTHED_CUBIC = np.float32(-0.5)  # that of torch's antialiased resize


@dataclass(frozen=True, slots=True)
class PlaceTable:
    """A table of `side` x `side` places; `line_shares` are one of those below."""

    side: int
    line_shares: Callable[[np.ndarray, int, int], np.ndarray]

    @classmethod
    def of(
        cls, places: int, what: str, line_shares: Callable[[np.ndarray, int, int], np.ndarray]
    ) -> PlaceTable:
        """The table of so many places.

        Raises:
            ModelConfigError: they are not those of a square, or too many; `what` is their name.
        """
        side = math.isqrt(places)
        if side**2 != places or side > MAX_SIDE:
            raise ModelConfigError(
                f"{what} {places} must be the square of a whole number, at most {MAX_SIDE}"
            )
        return cls(side, line_shares)

    def shares(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """The shares of rows and of columns of `cells` [N, 2], the row and column of each, in an
        image of `height` x `width` cells: f32 [N, 2 * side]."""
        rows, columns = cells.T
        sides = (rows, height), (columns, width)
        return np.concatenate([self.line_shares(*each, self.side) for each in sides], 1)


def linear_shares(cells: np.ndarray, size: int, side: int) -> np.ndarray:
    """How much of each of `side` places is in these cells of a line of `size` cells, whose first
    and last cells are the first and last place: f32 [cells, side], linear between places."""
    at = cells.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    distance = np.abs(at[:, None] - np.arange(side, dtype=np.float32))
    return np.maximum(np.float32(1) - distance, np.float32(0))


def bilinear_shares(cells: np.ndarray, size: int, side: int) -> np.ndarray:
    """As `linear_shares`, where a line of cells is as long as that of places; beyond the ends is
    the last place."""
    at = (cells.astype(np.float32) + np.float32(0.5)) * np.float32(side) / np.float32(size)
    at = np.clip(at - np.float32(0.5), 0, side - 1)
    distance = np.abs(at[:, None] - np.arange(side, dtype=np.float32))
    return np.maximum(np.float32(1) - distance, np.float32(0))


def faded_shares(cells: np.ndarray, size: int, side: int) -> np.ndarray:
    """As `bilinear_shares`, where nothing is beyond the ends."""
    at = (cells.astype(np.float32) + np.float32(0.5)) * np.float32(side) / np.float32(size)
    distance = np.abs(at[:, None] - np.float32(0.5) - np.arange(side, dtype=np.float32))
    return np.maximum(np.float32(1) - distance, np.float32(0))


def smoothed_shares(cells: np.ndarray, size: int, side: int) -> np.ndarray:
    """As `bilinear_shares`, where a cell that is longer than a place has shares of as many more of
    them: an antialiased resize."""
    scale = np.float32(side) / np.float32(size)
    at = (cells.astype(np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    distance = np.abs(at[:, None] - np.arange(side, dtype=np.float32)) / max(scale, np.float32(1))
    shares = np.maximum(np.float32(1) - distance, np.float32(0))
    return shares / shares.sum(1, keepdims=True)


def cubic_shares(cells: np.ndarray, size: int, side: int) -> np.ndarray:
    """As `linear_shares`, where a line of cells is as long as that of places, by the cubic kernel
    of four places around a cell (Keys, 1981); beyond the ends are more of the last place."""
    at = (cells.astype(np.float32) + np.float32(0.5)) * np.float32(side) / np.float32(size)
    at -= np.float32(0.5)
    first = np.floor(at).astype(np.int32) - 1
    shares = np.zeros((len(cells), side), np.float32)
    for place in (first, first + 1, first + 2, first + 3):
        share = _cubic(np.abs(at - place.astype(np.float32)))
        np.add.at(shares, (np.arange(len(cells)), np.clip(place, 0, side - 1)), share)
    return shares


def places_at(at: np.ndarray, side: int) -> np.ndarray:
    """The places, of `side` in a line, in which parts `at` of it begin, f32 from 0 to less than
    1."""
    ends = (np.arange(1, side) / side).astype(np.float32)
    return np.searchsorted(ends, at, side="right")


def nearest_shares(at: np.ndarray, side: int) -> np.ndarray:
    """As `linear_shares`, of cells that begin `at`: all of the place that `places_at` finds."""
    return (places_at(at, side)[:, None] == np.arange(side)).astype(np.float32)


def smoothed_cubic_shares(cells: np.ndarray, size: int, side: int) -> np.ndarray:
    """As `smoothed_shares`, by the cubic kernel."""
    scale = np.float32(side) / np.float32(size)
    at = (cells.astype(np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    distance = np.abs(at[:, None] - np.arange(side, dtype=np.float32)) / max(scale, np.float32(1))
    shares = np.where(distance < 2, _cubic(distance, _SMOOTHED_CUBIC), np.float32(0))
    return shares / shares.sum(1, keepdims=True)


def place_embeddings(weights: Weights, name: str, shares: Tensor, hidden: int) -> Tensor:
    """shares [T, 2 * side], of rows and of columns -> [T, hidden], from the table `<name>.weight`
    [side * side, hidden]."""
    products = share_products(weights, shares, shares.width // 2)
    return linear(weights, name, products, (hidden,), transposed=True)


def share_products(weights: Weights, shares: Tensor, at: int) -> Tensor:
    """shares [T, N], which `at` divides in two -> the products of each of the first ones with each
    of the others, [T, at * (N - at)]."""
    rows, columns = ops.split(shares, at)
    identity = [[float(i == j) for j in range(at)] for i in range(at)]
    # In f32, as `mix_streams` reads weights.
    factors = ops.linear(
        rows, weights.constant("identity", identity), row_shape=(at, 1), dtype="f32"
    )
    return ops.mix_streams(columns, factors)


def _cubic(distance: np.ndarray, a: np.float32 = _CUBIC) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)
