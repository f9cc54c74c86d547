"""Comparison of the vocabularies of two models."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagemill.weights import WeightsError
from pagemill.weights.source import ModelSource
from pagemill.weights.vocabulary import first_difference, vocabulary


def source(folder: Path, tokenizer: Any = None) -> ModelSource:
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return ModelSource("hf", folder, {}, None, None, {})


def test_a_map_of_pieces_and_added_tokens(tmp_path: Path) -> None:
    tokenizer = {
        "model": {"vocab": {"a": 0, "b": 1}},
        "added_tokens": [{"id": 2, "content": "<end>"}],
    }
    assert vocabulary(source(tmp_path, tokenizer)) == {0: "a", 1: "b", 2: "<end>"}


def test_a_list_of_pieces_with_scores(tmp_path: Path) -> None:
    tokenizer = {"model": {"vocab": [["a", -1.0], ["b", -2.5]]}}
    assert vocabulary(source(tmp_path, tokenizer)) == {0: "a", 1: "b"}


def test_no_tokenizer(tmp_path: Path) -> None:
    assert vocabulary(source(tmp_path)) == {}


@pytest.mark.parametrize("tokenizer", [{}, {"model": {}}, {"model": {"vocab": 3}}, {"model": []}])
def test_a_file_that_is_none(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"tokenizer\.json: not a tokenizer"):
        vocabulary(source(tmp_path, tokenizer))


def test_the_first_difference_ignores_padding() -> None:
    assert first_difference({0: "a", 1: "b"}, {0: "a", 1: "b", 2: "pad"}) is None
    assert first_difference({0: "a", 1: "b", 2: "c"}, {0: "a", 1: "x", 2: "y"}) == 1
    assert first_difference({}, {0: "a"}) is None
