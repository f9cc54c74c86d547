"""The text of each token id according to a model's files, to compare two models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import read_object
from pagemill.weights.source import ModelSource


def vocabulary(source: ModelSource) -> Mapping[int, str]:
    """The pieces of the tokenizer of `source` by their ids, including added tokens; empty if its
    files contain no tokenizer.

    Raises:
        WeightsError: its tokenizer cannot be read.
    """
    if source.gguf is not None:
        return dict(enumerate(source.gguf.metadata.get("tokenizer.ggml.tokens") or ()))
    path = source.path / "tokenizer.json"
    if not path.exists():
        return {}
    tokenizer = read_object(path)
    try:
        pieces = cast("dict[str, Any]", tokenizer["model"])["vocab"]
        # A map from pieces to ids, or a list of pairs of a piece and its score.
        if isinstance(pieces, dict):
            ids = cast("dict[str, int]", pieces)
            found = {int(index): piece for piece, index in ids.items()}
        else:
            found = {index: str(pair[0]) for index, pair in enumerate(pieces)}
        found |= {int(t["id"]): str(t["content"]) for t in tokenizer.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise WeightsError(f"{path}: not a tokenizer: {error!r}") from error
    return found


def first_difference(a: Mapping[int, str], b: Mapping[int, str]) -> int | None:
    """The lowest id that has different texts; ids of only one vocabulary are padding. None if there
    is no such id."""
    return min((index for index in a.keys() & b.keys() if a[index] != b[index]), default=None)
