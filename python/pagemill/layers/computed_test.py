"""Tests of pagemill.layers.computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pagemill.layers.computed import resampled, row, shares, small_columns
from pagemill.ops.shard import Part

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


class Stored:
    """Weights that compute at once."""

    def __init__(self, **tensors: np.ndarray) -> None:
        self._tensors = tensors
        self.names: list[str] = []

    def computed(
        self,
        name: str,
        shape: tuple[int, ...],
        stored: Mapping[str, tuple[int, ...]],
        compute: Callable[..., np.ndarray],
    ) -> np.ndarray:
        assert all(self._tensors[each].shape == its for each, its in stored.items())
        self.names.append(name)
        result = compute(*(self._tensors[each] for each in stored))
        assert result.shape == shape
        return result


def test_shares_of_a_vector() -> None:
    weights: Any = Stored(v=MATRIX.reshape(12))
    assert np.array(shares(weights, "v", 12)).tolist() == [[1 - v, v] for v in range(12)]
    previous: Any = shares(weights, "v", 12, of_previous=True)
    assert previous.tolist() == [[v, 1 - v] for v in range(12)]


def test_columns_of_a_small_matrix() -> None:
    weights: Any = Stored(m=MATRIX)
    found: Any = small_columns(weights, "m", (3, 4), columns=Part(1, 3, 4), rows=[2, 0, 2])
    assert found.tolist() == [[9, 1, 9], [10, 2, 10]]


def test_a_row() -> None:
    weights: Any = Stored(m=MATRIX)
    found: Any = row(weights, "m", 1, (3, 4))
    assert found.tolist() == [4, 5, 6, 7]
    assert np.array(row(weights, "m", 2, (3, 4))).tolist() == [8, 9, 10, 11]
    assert weights.names == ["m[1]", "m[2]"]  # of two constants


def test_rows_of_a_table_in_other_numbers() -> None:
    weights: Any = Stored(table=MATRIX.reshape(1, 3, 2, 2))
    own = np.array([[0.5, 0.5, 0], [0, 0, 2]], np.float32)
    found: Any = resampled(weights, "table", (1, 3, 2, 2), own, (2, 4))
    assert found.tolist() == [[2, 3, 4, 5], [16, 18, 20, 22]]
