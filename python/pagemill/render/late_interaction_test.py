"""What files of ColBERT and of PyLate say of queries and documents."""

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from pagemill.inputs.late_interaction import LateInteraction
from pagemill.render.errors import RenderError
from pagemill.render.late_interaction import late_interaction
from pagemill.render.renderer import Renderer
from pagemill.render.tokenizer import TextTokenizer

_WORDS = ["[PAD]", "[unused0]", "[unused1]", "[MASK]", ".", "!", "a", "[Q] ", "[D] "]


class Source(NamedTuple):
    path: Path


def _rules(folder: Path, name: str, fields: Any) -> LateInteraction:
    (folder / name).write_text(json.dumps(fields))
    renderer = Renderer.__new__(Renderer)  # nothing but its tokenizer is looked at
    renderer.tokenizer = TextTokenizer(
        Tokenizer(WordLevel({word: i for i, word in enumerate(_WORDS)}, unk_token="[PAD]"))
    )
    return late_interaction(cast(Any, Source(folder)), renderer)


def test_colbert(tmp_path: Path) -> None:
    fields = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 8}
    name = "artifact.metadata"
    assert _rules(tmp_path, name, fields) == LateInteraction(1, 2, None, 8, frozenset({4, 5}))
    fields |= {"attend_to_mask_tokens": True, "mask_punctuation": False}
    assert _rules(tmp_path, name, fields) == LateInteraction(1, 2, 3, 8)
    with pytest.raises(RenderError, match="not a JSON object"):
        _rules(tmp_path, name, [])


def test_pylate(tmp_path: Path) -> None:
    name = "config_sentence_transformers.json"
    fields: dict[str, Any] = {"query_prefix": "[Q] ", "document_prefix": "[D] "}
    assert _rules(tmp_path, name, fields) == LateInteraction(7, 8, None, 32)
    fields |= {"skiplist_words": ["!", "?", 5], "attend_to_expansion_tokens": True}
    assert _rules(tmp_path, name, fields) == LateInteraction(7, 8, 3, 32, frozenset({5}))
    assert _rules(tmp_path, name, fields | {"do_query_expansion": False}).mask is None
    assert _rules(tmp_path, name, fields | {"query_length": 10**9}).query_length == 32
    assert _rules(tmp_path, name, {"prompts": {}}) == LateInteraction()


def test_texts() -> None:
    rules = LateInteraction(7, 8, 3, 6, frozenset({4}))
    ids = np.array([0, 6, 4, 1], np.int32)
    assert rules.query(ids).tolist() == [0, 7, 6, 4, 1, 3]
    assert rules.document(ids).tolist() == [0, 8, 6, 4, 1]
    assert rules.query(ids).dtype == np.int32
    rows = np.arange(10.0).reshape(5, 2)
    assert rules.kept(rules.document(ids), rows)[:, 0].tolist() == [0, 2, 4, 8]
    assert len(rules.kept(np.array([4, 4]), rows[:2])) == 2  # something has to be compared
    assert rules.kept(rules.document(ids), rows[2:])[:, 0].tolist() == [4, 8]  # cut at its left
    assert LateInteraction().query(ids) is ids and LateInteraction().added_tokens == 0
