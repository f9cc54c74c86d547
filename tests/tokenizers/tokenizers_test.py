"""Ids and text of real tokenizers equal those of `transformers`, on lines of mixed scripts.

    PAGEMILL_TEST_TOKENIZERS    paths of tokenizer.json or GGUF files, with spaces between them
    PAGEMILL_TEST_LINES         the number of lines, 300 by default

Without the first the tests skip.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pagemill.render.renderer import Renderer
from pagemill.weights.source import ModelSource
from tokenizers import decoders, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.tokenizers.mixed_scripts import mixed_lines

_PATHS = [Path(path) for path in os.environ.get("PAGEMILL_TEST_TOKENIZERS", "").split()]
_LINES = int(os.environ.get("PAGEMILL_TEST_LINES", "300"))


class _Folder:
    """What a renderer reads of a folder that holds a tokenizer and no model."""

    config: dict[str, Any] = {}
    gguf = None

    def __init__(self, path: Path) -> None:
        self.path = path


@pytest.fixture(name="path", params=_PATHS or [None], ids=lambda path: path and path.parent.name)
def _path(request: pytest.FixtureRequest) -> Path:
    if request.param is None:
        assert "TEST_SRCDIR" not in os.environ, "the BUILD file names no tokenizer"
        pytest.skip("PAGEMILL_TEST_TOKENIZERS is not set")
    return request.param


def _of_folder(path: Path) -> tuple[Renderer, Any]:
    return Renderer.open(_Folder(path.parent)), PreTrainedTokenizerFast.from_pretrained(path.parent)


def _of_gguf(path: Path) -> tuple[Renderer, Any]:
    source = ModelSource.open(path)
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    if source.gguf is not None and source.gguf.metadata.get("tokenizer.ggml.pre") == "smollm":
        # Digits are cut out first, a step that `transformers` leaves out of this kind of file.
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend = theirs.backend_tokenizer
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    return Renderer.open(source), theirs


def test_ids_and_text(path: Path) -> None:
    ours, theirs = (_of_gguf if path.suffix == ".gguf" else _of_folder)(path)
    lines = mixed_lines(_LINES)
    for line, ids in zip(lines, theirs(lines)["input_ids"], strict=True):
        assert ours.encode(line, parse_special=True) == ids, repr(line)
        if isinstance(theirs.backend_tokenizer.decoder, decoders.WordPiece):
            continue  # an encoder's, which writes nothing
        text = theirs.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=False) == text, repr(line)


def test_lines_are_of_many_scripts() -> None:
    text = "".join(mixed_lines(300))
    assert len(set(text)) > 1500
    assert mixed_lines(300) == mixed_lines(300) != mixed_lines(300, seed=1)
