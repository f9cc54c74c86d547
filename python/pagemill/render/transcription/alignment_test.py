"""Tokens are found in the sound that they attend to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pagemill.render.transcription.alignment import Heard, _first_rows, token_times

ROWS = 50


def heard(*rows: range) -> Heard:
    """Tokens that attend to these rows, by the first of two heads; the other attends to all."""
    keys = np.zeros((ROWS, 2, ROWS), np.float32)
    keys[:, 0] = np.eye(ROWS)
    queries = np.zeros((len(rows), 2, ROWS), np.float32)
    for token, each in enumerate(rows):
        queries[token, 0, each] = 10 * ROWS**0.5
    return Heard(queries, keys)


def test_tokens_begin_where_they_attend_to() -> None:
    times = token_times(heard(range(10), range(10, 22), range(22, 45), range(45, 50)), 1.0)
    assert times.tolist() == pytest.approx([0.0, 0.2, 0.44, 0.9])


def test_silence_behind_a_clip_is_not_heard() -> None:
    tokens = heard(range(5), range(5, 50), range(40, 50))
    assert token_times(tokens, 1.0)[2] > 0.5
    assert token_times(tokens, 0.4).max() < 0.4
    assert token_times(tokens, 0.0).tolist() == [0, 0, 0]


def test_tokens_have_an_order() -> None:
    times = token_times(heard(range(20, 30), range(10), range(40, 50)), 1.0)
    assert times.tolist() == sorted(times)


@pytest.mark.parametrize("clip_s", [0.02, 0.06, 1.0])
def test_a_single_token_begins_with_its_clip(clip_s: float) -> None:
    assert token_times(heard(range(30, 40)), clip_s).tolist() == [0]


def test_a_head_that_attends_to_one_row_alike() -> None:
    """No weight differs: there is nothing to divide by."""
    same = heard(range(3, 4), range(3, 4))
    times = token_times(same, 1.0)
    assert np.isfinite(times).all() and times.tolist() == sorted(times)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_that_are_not_finite() -> None:
    tokens = heard(range(10), range(10, 50))
    tokens.queries[1] = np.inf
    times = token_times(tokens, 1.0)
    assert times.min() >= 0 and times.max() < 1


@pytest.mark.parametrize("seed", range(20))
def test_the_path_is_the_cheapest(seed: int) -> None:
    random = np.random.default_rng(seed)
    tokens, rows = random.integers(1, 5, 2)
    cost = random.normal(size=(tokens, rows))
    steps = ((1, 1), (1, 0), (0, 1))

    def paths(token: int, row: int) -> list[list[tuple[int, int]]]:
        if (token, row) == (tokens - 1, rows - 1):
            return [[(token, row)]]
        ways = [(token + down, row + right) for down, right in steps]
        ways = [way for way in ways if way[0] < tokens and way[1] < rows]
        return [[(token, row), *rest] for way in ways for rest in paths(*way)]

    best = min(paths(0, 0), key=lambda path: sum(cost[at] for at in path))
    firsts = [next(cells)[1] for _, cells in itertools.groupby(best, key=lambda cell: cell[0])]
    assert _first_rows(cost).tolist() == firsts
