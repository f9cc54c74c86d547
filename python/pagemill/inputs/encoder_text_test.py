"""Prompts of encoder-decoders of text."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.inputs.encoder_text import EncoderText

TEXT = EncoderText(50, placeholder=0, start=(1, 2), most_tokens=3, decoder_tokens=8)


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


@pytest.mark.parametrize(
    ("decoder", "begins"),
    [((), [1, 2]), ((7, 8), [1, 7, 8]), ((1,), [1]), ((1, 9), [1, 9])],
)
def test_a_prompt(decoder: tuple[int, ...], begins: list[int]) -> None:
    prompt = TEXT.prompt(ids(49, 5), decoder)
    assert prompt.token_ids.tolist() == [0, 0, *begins]
    (item,) = prompt.media
    assert (item.first_token, item.features.tokens) == (0, 2)
    assert item.features.rows.tolist() == [[49], [5]]
    assert TEXT.longest(prompt) == 10


def test_items_are_known_by_their_text() -> None:
    names = {TEXT.prompt(ids(*text)).media[0].content_id for text in ((5, 6), (6, 5), (5,))}
    assert len(names) == 3
    same = [TEXT.prompt(ids(5, 6), decoder).media[0].content_id for decoder in ((), (7,))]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ((), "has 0 tokens; the encoder of this model reads 1 to 3"),
        ((5, 5, 5, 5), "has 4 tokens"),
        ((5, 50), "from 0 to 49"),
        ((-1,), "from 0 to 49"),
    ],
)
def test_texts_that_do_not_fit(text: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TEXT.prompt(ids(*text))
