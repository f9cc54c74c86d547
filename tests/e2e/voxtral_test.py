"""A model that chats and transcribes: Voxtral writes of an audio file what `transformers` finds."""

from __future__ import annotations

import io
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import torch
from pagemill.render.transcription.testing.speech_tokenizers import VOXTRAL_CONTROL, byte_tokenizer
from transformers import (
    LlamaConfig,
    VoxtralConfig,
    VoxtralEncoderConfig,
    VoxtralForConditionalGeneration,
    WhisperFeatureExtractor,
)

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.parity.tiny_models import save

RATE, BINS, FRAMES, AUDIO_TOKENS = 16_000, 8, 3000, 375  # of 30 seconds
TOKENIZER = byte_tokenizer(VOXTRAL_CONTROL, first=True)
AUDIO = TOKENIZER.token_to_id("[AUDIO]")
LETTERS = [TOKENIZER.token_to_id(letter) for letter in string.ascii_lowercase]
MAX_TOKENS = 8
PATH = "/v1/audio/transcriptions"
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


@dataclass(frozen=True)
class Served:
    """A running server, and its model in `transformers`."""

    server: ServerProcess
    reference: VoxtralForConditionalGeneration

    def post(self, samples: np.ndarray, path: str = PATH, **fields: str) -> httpx.Response:
        file = io.BytesIO()
        soundfile.write(file, samples, RATE, format="WAV", subtype="FLOAT")
        data = {"max_completion_tokens": str(MAX_TOKENS), **fields}
        files = {"file": ("a.wav", file.getvalue())}
        return httpx.post(f"{self.server.base_url}{path}", files=files, data=data, timeout=120)

    def text(self, samples: np.ndarray, language: str) -> str:
        """The likeliest tokens behind the prompt of mistral-common."""
        features = _EXTRACTOR(
            samples,
            sampling_rate=RATE,
            return_tensors="pt",
            truncation=False,
            padding=True,
            pad_to_multiple_of=30 * RATE,
        )["input_features"]
        parts = features.reshape(BINS, -1, FRAMES).transpose(0, 1)
        names = ["<s>", "[INST]", "[BEGIN_AUDIO]", *["[AUDIO]"] * AUDIO_TOKENS * len(parts)]
        names += ["[/INST]", *language, "[TRANSCRIBE]"]
        ids = [TOKENIZER.token_to_id(name) for name in names]
        for _ in range(MAX_TOKENS):
            with torch.inference_mode():
                out = self.reference(input_ids=torch.tensor([ids]), input_features=parts)
            ids.append(int(out.logits[0, -1].argmax()))
        return TOKENIZER.decode(ids[len(names) :])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("voxtral")
    encoder = VoxtralEncoderConfig(
        num_mel_bins=BINS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    text = LlamaConfig(
        vocab_size=TOKENIZER.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=2,
    )
    config = VoxtralConfig(audio_config=encoder, text_config=text, audio_token_id=AUDIO)
    torch.manual_seed(3)
    reference = save(VoxtralForConditionalGeneration(config), folder)
    with torch.no_grad():  # outputs are small letters
        head = reference.get_output_embeddings().weight
        head *= 0.01
        head[LETTERS] *= 100
    reference.save_pretrained(folder)
    TOKENIZER.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    _EXTRACTOR.save_pretrained(folder)
    options = ("--kv-cache-dtype", "f32", "--activation-dtype", "f32", "--max-num-seqs", "4")
    with serve(str(folder), tmp_path_factory.mktemp("server"), options) as server:
        yield Served(server, reference)
        server.wait_until_idle()


@pytest.mark.parametrize("seconds", [3, 40])
def test_text(served: Served, seconds: int) -> None:
    """Audio is one prompt, also if the encoder hears it in parts."""
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    for fields, language in (({"language": "de"}, "lang:de"), ({}, "")):
        answer = served.post(samples, **fields)
        assert answer.status_code == 200, answer.text
        text = served.text(samples, language)
        assert answer.json() == {"text": text, "usage": {"type": "duration", "seconds": seconds}}
        assert set(text) <= set(string.ascii_lowercase) and len(text) == MAX_TOKENS


def test_it_chats(served: Served) -> None:
    body = {"model": NAME, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    answer = httpx.post(f"{served.server.base_url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (PATH, {"response_format": "srt"}, "response_format"),
        (PATH, {"prompt": "a"}, "prompt"),
        ("/v1/audio/translations", {}, "model"),
    ],
)
def test_refusals(served: Served, path: str, fields: dict[str, str], param: str) -> None:
    answer = served.post(np.zeros(RATE, np.float32), path, **fields)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
