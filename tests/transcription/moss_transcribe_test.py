"""MOSS-Transcribe-Diarize writes of a file what `transformers` finds behind the prompt of its chat
template, with times among the tokens of audio."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pagemill.render.transcription.testing.speech_tokenizers import byte_tokenizer
from transformers import (
    MossTranscribeDiarizeConfig,
    MossTranscribeDiarizeFeatureExtractor,
    MossTranscribeDiarizeForConditionalGeneration,
)

from tests.transcription.transcribing_server import (
    BINS,
    ENCODER_SIZES,
    RATE,
    TranscribingServer,
    is_letters,
    llama_config,
    serve_letters,
)

CONTROL = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|pad|>")
# As Qwen's tokenizers, it begins with ASCII from "!" on: so digits are where theirs are.
TOKENIZER = byte_tokenizer(CONTROL)
TEMPLATE = (
    "{% for message in messages %}<|user|>{% for part in message.content %}"
    "{% if part.type == 'audio' %}<|pad|>{% endif %}"
    "{% endfor %}Who says what?{% endfor %}<|assistant|>"
)
_EXTRACTOR = MossTranscribeDiarizeFeatureExtractor(feature_size=BINS)


def reference_text(served: TranscribingServer, samples: np.ndarray) -> str:
    """What `transformers` finds behind the prompt of the chat template."""
    found = _EXTRACTOR(samples, sampling_rate=RATE, return_tensors="pt")
    tokens = -(-len(samples) // (8 * 160))
    seconds = range(2, 2 + 2 * (tokens // 25), 2)
    sound = "".join(f"{'<|pad|>' * 25}{second}" for second in seconds)
    prompt = f"<|user|>{sound}{'<|pad|>' * (tokens % 25)}Who says what?<|assistant|>"
    return served.text_behind(TOKENIZER.encode(prompt).ids, dict(found))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranscribingServer]:
    text = llama_config(TOKENIZER, TOKENIZER.token_to_id("<|endoftext|>")).to_dict()
    config = MossTranscribeDiarizeConfig(
        audio_config={**ENCODER_SIZES, "max_source_positions": 1500},
        text_config=text | {"model_type": "qwen3", "head_dim": 8},
        audio_token_id=TOKENIZER.token_to_id("<|pad|>"),
        tie_word_embeddings=False,
    )
    model = MossTranscribeDiarizeForConditionalGeneration(config)
    with serve_letters(model, TOKENIZER, _EXTRACTOR, TEMPLATE, tmp_path_factory) as server:
        yield server


@pytest.mark.parametrize("seconds", [3, 41])
def test_text(served: TranscribingServer, seconds: int) -> None:
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    text = reference_text(served, samples)
    assert is_letters(text)
    for fields in ({}, {"language": "de"}):
        answer = served.post(samples, **fields)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"text": text, "usage": {"type": "duration", "seconds": seconds}}


def test_segments(served: TranscribingServer) -> None:
    """Random weights write no turns."""
    answer = served.post(np.zeros(2 * RATE, np.float32), response_format="diarized_json")
    assert answer.status_code == 200, answer.text
    assert answer.json()["duration"] == 2.0 and answer.json()["segments"] == []


def test_refusals(served: TranscribingServer) -> None:
    answer = served.post(np.zeros(RATE, np.float32), prompt="names")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"
