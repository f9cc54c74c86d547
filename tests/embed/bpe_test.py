"""The embedding example reads exported vocabularies: its token ids are the server's."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pagemill.cli.export import vocabulary_text
from pagemill.config import ConfigError
from pagemill.render.renderer import Renderer
from pagemill.render.sample_vocabularies import (
    TEXT,
    byte_level_metadata,
    sentencepiece_metadata,
    sentencepiece_model,
)

BINARY = os.environ.get("PAGEMILL_TEST_PRINT_TOKENS", "")
TEXTS = [*TEXT, "Größe é crème 你好 😀 x", "  two  spaces", "a"]


def _renderer(metadata: dict[str, Any]) -> Renderer:
    gguf = SimpleNamespace(metadata=metadata)
    return Renderer.open(SimpleNamespace(gguf=gguf, path=None, config={}))  # type: ignore[arg-type]


def _metadata(name: str) -> dict[str, Any]:
    if name == "byte-level":
        return byte_level_metadata()
    prefix = name == "sentencepiece"
    return sentencepiece_metadata(sentencepiece_model(prefix), prefix)


@pytest.mark.skipif(not BINARY, reason="PAGEMILL_TEST_PRINT_TOKENS is not set")
@pytest.mark.parametrize("name", ["byte-level", "sentencepiece", "sentencepiece-without-prefix"])
def test_same_ids(name: str, tmp_path: Path) -> None:
    renderer = _renderer(_metadata(name))
    # The logits of a model may be wider than its vocabulary.
    text = vocabulary_text(renderer, renderer.vocab_size + 3)
    (tmp_path / "model.vocabulary").write_text(text)
    assert text.endswith("- -3\n" * 3)
    for prompt in TEXTS:
        command = [BINARY, tmp_path / "model.vocabulary", prompt]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert [int(token) for token in done.stdout.split()] == renderer.encode(prompt), prompt


def test_a_vocabulary_without_bytes_is_refused() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.merges"] = []
    tokens = [token if len(token) > 1 else token * 2 for token in metadata["tokenizer.ggml.tokens"]]
    metadata["tokenizer.ggml.tokens"] = list(dict.fromkeys(tokens))
    metadata["tokenizer.ggml.token_type"] = []
    with pytest.raises(ConfigError, match="neither byte-level nor SentencePiece"):
        vocabulary_text(_renderer(metadata), 300)


@pytest.mark.skipif(not BINARY, reason="PAGEMILL_TEST_PRINT_TOKENS is not set")
@pytest.mark.parametrize(
    ("content", "words"),
    [("", "the header is unknown"), ("words - -\nzz 0\n", "line 2: 'zz' is not a token")],
)
def test_a_file_that_is_none(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(content)
    command = [BINARY, tmp_path / "x", "a"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr
