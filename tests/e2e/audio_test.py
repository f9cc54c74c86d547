"""Audio over HTTP: a server answers as the offline model does with the same samples."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from pagemill.engine.llm import LLM
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.media.audio_models import PLACEHOLDER, audio, voxtral

TEMPLATE = (
    "{% for message in messages %}t20 {% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'audio' %} <audio> {% else %} {{ part['text'] }} {% endif %}"
    "{% endfor %}{% endif %} t21 {% endfor %}t22"
)
OPTIONS = {
    "max_model_len": 200,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
FIELDS = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}
A, B = audio(1, 4000), audio(2, 9000)


def base64_of(samples: np.ndarray) -> str:
    """A WAV file, without a loss."""
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV", subtype="FLOAT")
    return base64.b64encode(file.getvalue()).decode()


def save_files(path: Path) -> None:
    """Tokenizer, template and the feature extractor's settings."""
    vocab = {"<audio>" if i == PLACEHOLDER else f"t{i}": i for i in range(257)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = WordPiece()
    tokenizer.add_special_tokens(["<audio>"])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    settings = {"feature_extractor_type": "WhisperFeatureExtractor"}
    (path / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module", name="path")
def _path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("voxtral")
    voxtral(path)
    save_files(path)
    return path


@pytest.fixture(scope="module", name="server")
def _server(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    options += ['--limit-mm-per-prompt={"audio": 2}', "--max-audio-seconds=2"]
    with serve(str(path), tmp_path_factory.mktemp("log"), options) as server:
        yield server


def chat(server: ServerProcess, *parts: dict[str, Any]) -> httpx.Response:
    message = {"role": "user", "content": list(parts)}
    body = {"model": NAME, "messages": [message], **FIELDS}
    return httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)


def test_answers_are_those_of_the_offline_model(server: ServerProcess, path: Path) -> None:
    inner = {"type": "input_audio", "input_audio": {"data": base64_of(A), "format": "wav"}}
    url = {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + base64_of(B)}}
    words = {"type": "text", "text": "t30 t31"}
    answer = chat(server, inner, words, url | {"uuid": "b"}).json()
    named = chat(server, inner, words, {"type": "audio_url", "uuid": "b"}).json()
    assert answer["choices"] == named["choices"]
    with LLM(str(path), **OPTIONS) as llm:
        prompt = "t20 <audio> t30 t31 <audio> t21 t22"
        (expected,) = llm.generate(prompt, audios=[[A, B]], progress=io.StringIO(), **FIELDS)
        message = {"role": "user", "content": [inner, words, {"type": "audio", "audio": B}]}
        (offline,) = llm.chat([message], progress=io.StringIO(), **FIELDS)
    text = answer["choices"][0]["message"]["content"]
    assert text == expected.choices[0].text == offline.choices[0].text
    assert answer["usage"]["prompt_tokens"] == len(expected.prompt_token_ids)
    models = httpx.get(f"{server.base_url}/v1/models", timeout=60).json()
    assert models["data"][0]["input_modalities"] == ["text", "audio"]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([{"type": "input_audio", "input_audio": {"data": "YWJj"}}], "cannot be decoded"),
        ([{"type": "image_url", "image_url": "data:,"}], "this model takes audio"),
        (
            [{"type": "input_audio", "input_audio": {"data": base64_of(audio(1, 33_000))}}],
            "longer than 2 s",
        ),
    ],
)
def test_refusals_name_the_part(
    server: ServerProcess, parts: list[dict[str, Any]], why: str
) -> None:
    answer = chat(server, *parts)
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and why in message and "messages[0].content[0]" in message
