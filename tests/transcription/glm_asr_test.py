"""A model that chats about audio transcribes: GLM-ASR writes of a file what `transformers` finds
behind the prompt of its chat template."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from pagemill.render.transcription.testing.speech_tokenizers import byte_tokenizer
from transformers import (
    GlmAsrConfig,
    GlmAsrEncoderConfig,
    GlmAsrForConditionalGeneration,
    WhisperFeatureExtractor,
)

from tests.e2e.server_process import NAME
from tests.transcription.transcribing_server import (
    BINS,
    ENCODER_SIZES,
    MAX_TOKENS,
    RATE,
    TranscribingServer,
    is_letters,
    llama_config,
    serve_letters,
    session,
    wav,
)

CONTROL = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|pad|>", "<|begin|>", "<|end|>")
TOKENIZER = byte_tokenizer(CONTROL)
AUDIO = TOKENIZER.token_to_id("<|pad|>")
TEMPLATE = (
    "{% for message in messages %}<|user|>{% for part in message.content %}"
    "{% if part.type == 'audio' %}<|begin|><|pad|><|end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}<|assistant|>"
)
INSTRUCTION = "Please transcribe this audio into text"
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


def reference_text(served: TranscribingServer, samples: np.ndarray) -> str:
    """What `transformers` finds behind the prompt of the chat template."""
    parts = [samples[first : first + 30 * RATE] for first in range(0, len(samples), 30 * RATE)]
    found = _EXTRACTOR(parts, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True)
    frames = found["attention_mask"].sum(-1).tolist()
    tokens = sum((each + 1) // 2 // 4 for each in frames)
    prompt = f"<|user|><|begin|>{'<|pad|>' * tokens}<|end|>{INSTRUCTION}<|assistant|>"
    heard = {
        "input_features": found["input_features"],
        "input_features_mask": found["attention_mask"],
    }
    return served.text_behind(TOKENIZER.encode(prompt).ids, heard)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranscribingServer]:
    encoder = GlmAsrEncoderConfig(**ENCODER_SIZES)
    text = llama_config(TOKENIZER, TOKENIZER.token_to_id("<|endoftext|>"))
    config = GlmAsrConfig(
        audio_config=encoder, text_config=text, audio_token_id=AUDIO, tie_word_embeddings=False
    )
    model = GlmAsrForConditionalGeneration(config)
    with serve_letters(model, TOKENIZER, _EXTRACTOR, TEMPLATE, tmp_path_factory) as server:
        yield server


@pytest.mark.parametrize("seconds", [3, 40])
def test_text(served: TranscribingServer, seconds: int) -> None:
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    text = reference_text(served, samples)
    assert is_letters(text)
    for fields in ({}, {"language": "de"}):
        answer = served.post(samples, **fields)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"text": text, "usage": {"type": "duration", "seconds": seconds}}


def test_a_conversation_hears_what_a_chat_does(served: TranscribingServer) -> None:
    sent = (np.random.default_rng(5).normal(size=2 * RATE) * 3000).astype(np.int16)
    file = base64.b64encode(wav(sent, 24_000)).decode()
    part = {"type": "input_audio", "input_audio": {"data": file, "format": "wav"}}
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": [part]}],
        "temperature": 0.0,
        "max_tokens": MAX_TOKENS,
    }
    url = f"{served.server.base_url}/v1/chat/completions"
    chat = httpx.post(url, json=body, timeout=60).json()
    text = chat["choices"][0]["message"]["content"]
    assert is_letters(text)
    with session(served.server) as client:
        client.update(type="realtime", max_output_tokens=MAX_TOKENS)
        client.commit(sent)
        client.respond(temperature=0.0)
        response = client.until("response.done").response
    assert response.output[0].content[0].text == text
    assert response.usage.input_tokens == chat["usage"]["prompt_tokens"]


def test_refusals(served: TranscribingServer) -> None:
    answer = served.post(np.zeros(RATE, np.float32), response_format="srt")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"
    short = served.post(np.zeros(900, np.float32))
    assert short.status_code == 400 and "at least 961" in short.json()["error"]["message"]
