"""Qwen3-ASR transcribes: it writes of a file what `transformers` finds behind the prompt of its
chat template, which ends with the language that was sent, or that it hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.render.transcription.qwen3_asr import LANGUAGES
from pagemill.render.transcription.testing.speech_tokenizers import qwen3_asr_tokenizer
from transformers import (
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
)

from tests.transcription.transcribing_server import (
    BINS,
    RATE,
    TranscribingServer,
    is_letters,
    serve_letters,
)

WIDTH = 32
NAMES = [*LANGUAGES.values(), "None"]
TOKENIZER = qwen3_asr_tokenizer(NAMES)
AUDIO = TOKENIZER.token_to_id("<|audio_pad|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'audio' %}<|audio_pad|>{% else %}"
    "{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
_EXTRACTOR = Qwen3ASRFeatureExtractor(feature_size=BINS)


def reference_text(
    served: TranscribingServer, samples: np.ndarray, language: str, prompt: str = ""
) -> str:
    """What `transformers` finds behind the prompt of the chat template and the language."""
    return served.text_behind(*_inputs(samples, f"language {language}<asr_text>", prompt))


def language_of(served: TranscribingServer, samples: np.ndarray) -> str:
    """The likeliest language by `transformers`."""
    logits = served.next_logits(*_inputs(samples, "language", ""))
    return max(NAMES, key=lambda name: float(logits[TOKENIZER.token_to_id(f" {name}")]))


def _inputs(
    samples: np.ndarray, stated: str, prompt: str
) -> tuple[list[int], dict[str, torch.Tensor]]:
    """The tokens of a request whose answer begins with `stated`, and what its encoder hears."""
    frames = max(len(samples), RATE // 2) // 160
    tokens = frames // 100 * 13 + -(-(frames % 100) // 8)
    system = f"<|im_start|>system\n{prompt}<|im_end|>\n" if prompt else ""
    user = f"<|im_start|>user\n{'<|audio_pad|>' * tokens}<|im_end|>\n"
    ids = TOKENIZER.encode(f"{system}{user}<|im_start|>assistant\n{stated}").ids
    options: dict[str, Any] = {"padding": True, "return_attention_mask": True}
    found = _EXTRACTOR(samples, sampling_rate=RATE, **options)
    return ids, {
        "input_features": found["input_features"],
        "input_features_mask": found["attention_mask"],
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranscribingServer]:
    config = Qwen3ASRConfig(
        audio_config={
            "num_mel_bins": BINS,
            "d_model": 16,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 24,
            "n_window_infer": 200,
            "downsample_hidden_size": 4,
            "output_dim": WIDTH,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": TOKENIZER.get_vocab_size(),
            "hidden_size": WIDTH,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 2048,
        },
        audio_token_id=AUDIO,
        eos_token_id=TOKENIZER.token_to_id("<|endoftext|>"),
        pad_token_id=TOKENIZER.token_to_id("<|endoftext|>"),
        tie_word_embeddings=False,
    )
    model = Qwen3ASRForConditionalGeneration(config)
    with serve_letters(model, TOKENIZER, _EXTRACTOR, TEMPLATE, tmp_path_factory) as server:
        yield server


@pytest.mark.parametrize("seconds", [0.2, 3, 9])
def test_text(served: TranscribingServer, seconds: float) -> None:
    noise = np.random.default_rng(int(seconds)).normal(size=int(seconds * RATE))
    samples = noise.astype("f4") * 0.1
    german = served.post(samples, language="de", prompt="Names: Ada, Lin.")
    assert german.status_code == 200, german.text
    text = german.json()["text"]
    assert is_letters(text)
    assert text == reference_text(served, samples, "German", "Names: Ada, Lin.")
    heard = served.post(samples)
    assert heard.status_code == 200, heard.text
    assert heard.json()["text"] == reference_text(served, samples, language_of(served, samples))


def test_refusals(served: TranscribingServer) -> None:
    silence = np.zeros(RATE, np.float32)
    for field, value in (("response_format", "srt"), ("language", "tlh")):
        answer = served.post(silence, **{field: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field
