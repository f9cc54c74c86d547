"""Prompts are whole: shapes and types are compared when one is created."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pagemill.inputs.rendered_prompt import (
    MAX_MEDIA_ITEMS,
    GridPositions,
    MediaFeatures,
    MediaItem,
    RenderedPrompt,
)


def array(dtype: type, *shape: int) -> np.ndarray:
    return np.zeros(shape, dtype)


def test_a_prompt_of_text() -> None:
    prompt = RenderedPrompt.of([0, 2**31 - 1])
    assert (len(prompt), prompt.token_ids.dtype, prompt.media) == (2, np.int32, ())
    assert len(RenderedPrompt.of([])) == 0


@pytest.mark.parametrize("token_id", [2**31, -(2**31) - 1, 2**63, -(2**70)])
def test_ids_beyond_32_bits_are_refused_and_not_wrapped(token_id: int) -> None:
    with pytest.raises(OverflowError):
        RenderedPrompt.of([1, token_id])


def _shares(places: int, shares: int) -> tuple[np.ndarray, np.ndarray]:
    """A placement of two tokens, and shares of them."""
    return array(np.int32, 2, places), array(np.float32, 2, shares)


def test_arrays_of_wide_ids_are_compared_too() -> None:
    with pytest.raises(OverflowError):
        RenderedPrompt.of(np.array([2**32 + 1]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: RenderedPrompt(array(np.int64, 3)), r"token ids are int64 \[3\]"),
        (lambda: RenderedPrompt(array(np.int32, 3, 1)), r"must be int32 \[n\]"),
        (lambda: MediaFeatures(array(np.float64, 3, 1), 1), r"must be float32 \[n, n\]"),
        (lambda: MediaFeatures(array(np.float32, 3), 1), r"features are float32 \[3\]"),
        (
            lambda: MediaFeatures(array(np.float32, 1, 1), 2, placement=array(np.int32, 3)),
            r"places are int32 \[3\]; they must be int32 \[2\]",
        ),
        (
            lambda: MediaFeatures(array(np.float32, 1, 1), 2, None, 0, *_shares(4, 3)),
            r"shares are float32 \[2, 3\]; they must be float32 \[2, 4\]",
        ),
        (lambda: GridPositions(array(np.int32, 4, 2), array(np.int32, 4, 3), 1), r"\[n, 3\]"),
        (lambda: GridPositions(array(np.int32, 4, 3), array(np.float32, 4, 3), 1), "of tokens"),
    ],
)
def test_other_types_and_shapes_are_refused(create: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create()


def test_the_number_of_media_items_is_bounded() -> None:
    item = MediaItem("a", 0, MediaFeatures(array(np.float32, 1, 1), 1))
    with pytest.raises(ValueError, match="at most 4096"):
        RenderedPrompt(array(np.int32, 1), (item,) * (MAX_MEDIA_ITEMS + 1))
