"""A tokenizer from `tokenizer.tok.json`, the file of Grok 2: byte strings with their ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from pagemill.render.byte_vocabulary import byte_tokenizer
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array
from pagemill.render.special_tokens import read_json
from pagemill.render.split_patterns import SPLIT_RULES

FILE = "tokenizer.tok.json"
_WORDS = {"V1": SPLIT_RULES["grok-2"].patterns[0]}


def open_vocabulary(folder: Path, cache: Path | None) -> tuple[Tokenizer, dict[str, str]]:
    """Returns the tokenizer of the model in `folder`, and its tokens by their roles.

    Raises:
      RenderError: the folder has no such file, or it cannot be read.
    """
    file = folder / FILE
    content = read_json(file)
    if not content:
        raise RenderError(f"{folder} has no {FILE}, which --tokenizer-mode grok2 needs")
    try:
        pattern = content.get("pat_str", _WORDS[content["word_split"]])
        added = {
            index: AddedToken(text.decode(), normalized=False, special=True)
            for index, text in _tokens(content, "special_tokens").items()
        }
        pieces = _tokens(content, "regular_tokens")
        tokenizer = byte_tokenizer(pieces, added, str(pattern), cache)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, RenderError):
            raise
        raise RenderError(f"{file} is not a tokenizer of Grok's: {error!r}") from None
    return tokenizer, {"eos_token": "<|eos|>", "pad_token": "<|pad|>"}


def _tokens(content: Mapping[str, Any], name: str) -> dict[int, bytes]:
    """The bytes of each token of a list."""
    return {int(token["token"]): bytes(token["bytes"]) for token in as_array(content[name]) or ()}
