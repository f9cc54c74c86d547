"""How a checkpoint with vectors of tokens wants its texts: files of PyLate and of ColBERT.

`config_sentence_transformers.json` of PyLate has `query_prefix`, `document_prefix`,
`skiplist_words`, `query_length`, `do_query_expansion` and `attend_to_expansion_tokens`;
`artifact.metadata` of ColBERT `query_token_id`, `doc_token_id`, `mask_punctuation`, `query_maxlen`
and `attend_to_mask_tokens`.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pagemill.inputs.late_interaction import LateInteraction
from pagemill.render.json_values import as_array
from pagemill.render.model_files import RenderSource
from pagemill.render.renderer import Renderer
from pagemill.render.special_tokens import read_json, token_text
from pagemill.render.token_id_renderer import AnyRenderer
from pagemill.render.tokenizer import TextTokenizer

_QUERY_LENGTH = 32  # the default of both
_MAX_QUERY_LENGTH = 512
_MASKS = ("[MASK]", "<mask>")


def late_interaction(source: RenderSource, renderer: AnyRenderer) -> LateInteraction:
    """The rules of the checkpoint that `source` is; those of any other model if it states none, or
    without a tokenizer.

    Queries are filled with mask tokens only if the model attends to them: without that each would
    be hidden from the others.

    Raises:
        RenderError: a file is not a JSON object.
    """
    if not isinstance(renderer, Renderer):
        return LateInteraction()
    folder, tokenizer = Path(source.path), renderer.tokenizer
    pylate = read_json(folder / "config_sentence_transformers.json")
    if "query_prefix" in pylate or "document_prefix" in pylate:
        attends = pylate.get("attend_to_expansion_tokens") is True
        return LateInteraction(
            _token(tokenizer, pylate.get("query_prefix")),
            _token(tokenizer, pylate.get("document_prefix")),
            _mask(folder, tokenizer)
            if attends and pylate.get("do_query_expansion", True) is True
            else None,
            _length(pylate, "query_length"),
            _tokens(tokenizer, as_array(pylate.get("skiplist_words")) or ()),
        )
    colbert = read_json(folder / "artifact.metadata")
    if not colbert:
        return LateInteraction()
    return LateInteraction(
        _token(tokenizer, colbert.get("query_token_id")),
        _token(tokenizer, colbert.get("doc_token_id")),
        _mask(folder, tokenizer) if colbert.get("attend_to_mask_tokens") is True else None,
        _length(colbert, "query_maxlen"),
        _tokens(tokenizer, string.punctuation)
        if colbert.get("mask_punctuation", True) is True
        else frozenset(),
    )


def _token(tokenizer: TextTokenizer, content: Any) -> int | None:
    return tokenizer.token_id(content) if isinstance(content, str) else None


def _tokens(tokenizer: TextTokenizer, contents: Iterable[Any]) -> frozenset[int]:
    found = (_token(tokenizer, content) for content in contents)
    return frozenset(token for token in found if token is not None)


def _mask(folder: Path, tokenizer: TextTokenizer) -> int | None:
    stated = token_text(read_json(folder / "tokenizer_config.json").get("mask_token"))
    found = (_token(tokenizer, content) for content in (stated, *_MASKS))
    return next((token for token in found if token is not None), None)


def _length(config: Mapping[str, Any], key: str) -> int:
    length = config.get(key, _QUERY_LENGTH)
    return length if type(length) is int and 0 < length <= _MAX_QUERY_LENGTH else _QUERY_LENGTH
