"""A model that chats and transcribes: Voxtral writes of an audio file what `transformers` finds."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from pagemill.render.transcription.testing.speech_tokenizers import VOXTRAL_CONTROL, byte_tokenizer
from transformers import (
    VoxtralConfig,
    VoxtralEncoderConfig,
    VoxtralForConditionalGeneration,
    WhisperFeatureExtractor,
)

from tests.e2e.server_process import NAME
from tests.transcription.transcribing_server import (
    BINS,
    ENCODER_SIZES,
    PATH,
    RATE,
    TranscribingServer,
    is_letters,
    llama_config,
    serve_letters,
)

FRAMES, AUDIO_TOKENS = 3000, 375  # of 30 seconds
TOKENIZER = byte_tokenizer(VOXTRAL_CONTROL, first=True)
AUDIO = TOKENIZER.token_to_id("[AUDIO]")
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


def reference_text(served: TranscribingServer, samples: np.ndarray, language: str) -> str:
    """What `transformers` finds behind the prompt of mistral-common."""
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
    return served.text_behind(ids, {"input_features": parts})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranscribingServer]:
    encoder = VoxtralEncoderConfig(**ENCODER_SIZES)
    text = llama_config(TOKENIZER, 2)
    config = VoxtralConfig(audio_config=encoder, text_config=text, audio_token_id=AUDIO)
    model = VoxtralForConditionalGeneration(config)
    template = "{{ messages[0]['content'] }}"
    with serve_letters(model, TOKENIZER, _EXTRACTOR, template, tmp_path_factory) as server:
        yield server


@pytest.mark.parametrize("seconds", [3, 40])
def test_text(served: TranscribingServer, seconds: int) -> None:
    """Audio is one prompt, also if the encoder hears it in parts."""
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    for fields, language in (({"language": "de"}, "lang:de"), ({}, "")):
        answer = served.post(samples, **fields)
        assert answer.status_code == 200, answer.text
        text = reference_text(served, samples, language)
        assert answer.json() == {"text": text, "usage": {"type": "duration", "seconds": seconds}}
        assert is_letters(text)


def test_it_chats(served: TranscribingServer) -> None:
    body = {"model": NAME, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    answer = httpx.post(f"{served.server.base_url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (PATH, {"response_format": "srt"}, "response_format"),
        (PATH, {"prompt": "a"}, "prompt"),
        ("/v1/audio/translations", {}, "model"),
    ],
)
def test_refusals(
    served: TranscribingServer, path: str, fields: dict[str, str], param: str
) -> None:
    answer = served.post(np.zeros(RATE, np.float32), path, **fields)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
