"""Prompts of embeddings: items of equal rows are equal, and what fits no model is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.inputs.prompt_embeds import MAX_ROWS, ROWS_PER_ITEM, check_shape, embeds_prompt

WIDTH = 3


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)


def test_items_cover_the_prompt() -> None:
    given = rows(2 * ROWS_PER_ITEM + 5)
    prompt = embeds_prompt(given, WIDTH)
    assert len(prompt) == len(given) and not prompt.token_ids.any()
    assert [item.first_token for item in prompt.media] == [0, ROWS_PER_ITEM, 2 * ROWS_PER_ITEM]
    assert [item.features.tokens for item in prompt.media] == [ROWS_PER_ITEM, ROWS_PER_ITEM, 5]
    kept = np.concatenate([item.features.rows for item in prompt.media])
    np.testing.assert_array_equal(kept, given)


def test_prompts_that_begin_alike_have_equal_items() -> None:
    one = rows(3 * ROWS_PER_ITEM)
    other = one.copy()
    other[ROWS_PER_ITEM, 1] += 1e-6
    ids = [[item.content_id for item in embeds_prompt(each, WIDTH).media] for each in (one, other)]
    assert [a == b for a, b in zip(*ids, strict=True)] == [True, False, True]
    assert len({*ids[0], *ids[1]}) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (rows(4)[:, :2], r"have the shape \[4, 2\]; this model takes \[tokens, 3\]"),
        (rows(1)[0], r"have the shape \[3\]"),
        (rows(0), "are 0 rows"),
        (np.full((1, WIDTH), np.nan, np.float32), "not finite"),
        (np.full((1, WIDTH), np.inf, np.float32), "not finite"),
    ],
)
def test_refusals(given: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        embeds_prompt(given, WIDTH)


def test_the_longest_prompt() -> None:
    check_shape((MAX_ROWS, WIDTH), WIDTH)
    with pytest.raises(ValueError, match=f"are {MAX_ROWS + 1} rows; 1 to {MAX_ROWS}"):
        check_shape((MAX_ROWS + 1, WIDTH), WIDTH)
