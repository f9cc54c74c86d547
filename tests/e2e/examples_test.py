"""Each program of python/examples runs and prints what it should, on small models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.adapters.smollm2_adapter import write_adapter
from tests.e2e.server_process import (
    MINILM_REASON,
    SMOLLM2,
    SMOLLM2_REASON,
    ServerProcess,
    minilm_directory,
    serve,
)
from tests.parity.tiny_models import LLAVA_PLACEHOLDER, make

_FOLDER = Path("python/examples")
_PROGRAMS = {
    "adapters",
    "chat",
    "embeddings",
    "generate",
    "images",
    "streaming_client",
    "structured_output",
    "tool_call_client",
}
_TEMPLATE = (
    "{% for part in messages[0]['content'] %}{% if part['type'] == 'image' %} <image>"
    "{% else %} {{ part['text'] }}{% endif %}{% endfor %}"
)

with_smollm2 = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)


def _run(name: str, *arguments: str) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run(
        [sys.executable, str(_FOLDER / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_program_is_tested() -> None:
    assert {path.stem for path in _FOLDER.glob("*.py")} == _PROGRAMS


@with_smollm2
def test_generate() -> None:
    lines = _run("generate", SMOLLM2)
    assert len(lines) == 3 and "Paris" in lines[0]


@with_smollm2
def test_chat() -> None:
    first, *rest = _run("chat", SMOLLM2)
    assert "Paris" in first and "".join(rest).strip()


@with_smollm2
def test_structured_output() -> None:
    person, judgement = _run("structured_output", SMOLLM2)
    assert person.startswith("{'name': ") and "'hobbies': [" in person
    assert judgement in ("good", "bad")


@with_smollm2
def test_adapters(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "loud", 1)
    plain, loud = _run("adapters", SMOLLM2, str(adapter))
    assert "Paris" in plain and loud.startswith("mine: ")
    assert plain.partition(": ")[2] != loud.partition(": ")[2]


@pytest.mark.skipif(not minilm_directory(), reason=MINILM_REASON)
def test_embeddings() -> None:
    best, *_ = _run("embeddings", minilm_directory())
    assert best.endswith("A man eats bread.")


def test_images(tmp_path: Path) -> None:
    model = tmp_path / "llava"
    model.mkdir()
    make("llava", model)
    _save_files(model)
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    assert _run("images", str(model), str(tmp_path / "noise.png"))


def _save_files(model: Path) -> None:
    """The tokenizer, template and settings of images of the tiny model."""
    words = {LLAVA_PLACEHOLDER: "<image>"}
    vocab = {words.get(i, f"t{i}"): i for i in range(257)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = WordPiece()
    tokenizer.add_special_tokens(list(words.values()))
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "chat_template.jinja").write_text(_TEMPLATE)
    settings = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 24},
        "crop_size": {"height": 24, "width": 24},
    }
    (model / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), ["--max-model-len=2048"]) as running:
        yield running


@with_smollm2
def test_streaming_client(server: ServerProcess) -> None:
    *answer, usage = _run("streaming_client", server.base_url)
    assert "Paris" in "".join(answer)
    assert usage.endswith(" tokens") and int(usage.split()[0]) > 1


@with_smollm2
def test_tool_call_client(server: ServerProcess) -> None:
    call, *answer = _run("tool_call_client", server.base_url)
    assert call.startswith('get_weather({"city"') and "'degrees': 21" in call
    assert "".join(answer).strip()
