"""A model that chats about audio transcribes: GLM-ASR writes of a file what `transformers` finds
behind the prompt of its chat template."""

from __future__ import annotations

import io
import string
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import torch
from pagemill.render.transcription.testing.speech_tokenizers import byte_tokenizer
from transformers import (
    GlmAsrConfig,
    GlmAsrEncoderConfig,
    GlmAsrForConditionalGeneration,
    LlamaConfig,
    WhisperFeatureExtractor,
)

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.parity.tiny_models import save

RATE, BINS = 16_000, 8
CONTROL = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|pad|>", "<|begin|>", "<|end|>")
TOKENIZER = byte_tokenizer(CONTROL)
AUDIO = TOKENIZER.token_to_id("<|pad|>")
LETTERS = [TOKENIZER.token_to_id(letter) for letter in string.ascii_lowercase]
TEMPLATE = (
    "{% for message in messages %}<|user|>{% for part in message.content %}"
    "{% if part.type == 'audio' %}<|begin|><|pad|><|end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}<|assistant|>"
)
INSTRUCTION = "Please transcribe this audio into text"
MAX_TOKENS = 8
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


class Served:
    """A running server, and its model in `transformers`."""

    def __init__(self, server: ServerProcess, reference: GlmAsrForConditionalGeneration) -> None:
        self.server, self.reference = server, reference

    def post(self, samples: np.ndarray, **fields: str) -> httpx.Response:
        file = io.BytesIO()
        soundfile.write(file, samples, RATE, format="WAV", subtype="FLOAT")
        data = {"model": NAME, "max_completion_tokens": str(MAX_TOKENS), **fields}
        url = f"{self.server.base_url}/v1/audio/transcriptions"
        return httpx.post(url, files={"file": file.getvalue()}, data=data, timeout=120)

    def text(self, samples: np.ndarray) -> str:
        """The likeliest tokens behind the prompt of the chat template."""
        parts = [samples[first : first + 30 * RATE] for first in range(0, len(samples), 30 * RATE)]
        found = _EXTRACTOR(
            parts, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True
        )
        frames = found["attention_mask"].sum(-1).tolist()
        tokens = sum((each + 1) // 2 // 4 for each in frames)
        prompt = f"<|user|><|begin|>{'<|pad|>' * tokens}<|end|>{INSTRUCTION}<|assistant|>"
        ids = before = TOKENIZER.encode(prompt).ids
        for _ in range(MAX_TOKENS):
            with torch.inference_mode():
                out = self.reference(
                    input_ids=torch.tensor([ids]),
                    input_features=found["input_features"],
                    input_features_mask=found["attention_mask"],
                )
            ids = [*ids, int(out.logits[0, -1].argmax())]
        return TOKENIZER.decode(ids[len(before) :])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("glm_asr")
    encoder = GlmAsrEncoderConfig(
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
        eos_token_id=TOKENIZER.token_to_id("<|endoftext|>"),
    )
    config = GlmAsrConfig(
        audio_config=encoder, text_config=text, audio_token_id=AUDIO, tie_word_embeddings=False
    )
    torch.manual_seed(3)
    reference = save(GlmAsrForConditionalGeneration(config), folder)
    with torch.no_grad():  # outputs are small letters
        head = reference.get_output_embeddings().weight
        head *= 0.01
        head[LETTERS] *= 100
    reference.save_pretrained(folder)
    TOKENIZER.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    _EXTRACTOR.save_pretrained(folder)
    options = ("--kv-cache-dtype", "f32", "--activation-dtype", "f32", "--max-num-seqs", "4")
    with serve(str(folder), tmp_path_factory.mktemp("server"), options) as server:
        yield Served(server, reference)
        server.wait_until_idle()


@pytest.mark.parametrize("seconds", [3, 40])
def test_text(served: Served, seconds: int) -> None:
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    text = served.text(samples)
    assert set(text) <= set(string.ascii_lowercase) and len(text) == MAX_TOKENS
    for fields in ({}, {"language": "de"}):
        answer = served.post(samples, **fields)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"text": text, "usage": {"type": "duration", "seconds": seconds}}


def test_refusals(served: Served) -> None:
    answer = served.post(np.zeros(RATE, np.float32), response_format="srt")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"
    short = served.post(np.zeros(900, np.float32))
    assert short.status_code == 400 and "at least 961" in short.json()["error"]["message"]
