"""Qwen3-ASR transcribes: it writes of a file what `transformers` finds behind the prompt of its
chat template, which ends with the language that was sent, or that it hears."""

from __future__ import annotations

import io
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import torch
from pagemill.render.transcription.qwen3_asr import LANGUAGES
from pagemill.render.transcription.testing.speech_tokenizers import qwen3_asr_tokenizer
from transformers import (
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
)

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.parity.tiny_models import save

RATE, BINS, WIDTH = 16_000, 8, 32
NAMES = [*LANGUAGES.values(), "None"]
TOKENIZER = qwen3_asr_tokenizer(NAMES)
AUDIO = TOKENIZER.token_to_id("<|audio_pad|>")
LETTERS = [TOKENIZER.token_to_id(letter) for letter in string.ascii_lowercase]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'audio' %}<|audio_pad|>{% else %}"
    "{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
MAX_TOKENS = 8
_EXTRACTOR = Qwen3ASRFeatureExtractor(feature_size=BINS)


class Served:
    """A running server, and its model in `transformers`."""

    def __init__(self, server: ServerProcess, reference: Qwen3ASRForConditionalGeneration) -> None:
        self.server, self.reference = server, reference

    def post(self, samples: np.ndarray, **fields: str) -> httpx.Response:
        file = io.BytesIO()
        soundfile.write(file, samples, RATE, format="WAV", subtype="FLOAT")
        data = {"model": NAME, "max_completion_tokens": str(MAX_TOKENS), **fields}
        url = f"{self.server.base_url}/v1/audio/transcriptions"
        return httpx.post(url, files={"file": file.getvalue()}, data=data, timeout=120)

    def text(self, samples: np.ndarray, language: str, prompt: str = "") -> str:
        """The likeliest tokens behind the prompt of the chat template and the language."""
        ids = before = self._ids(samples, f"language {language}<asr_text>", prompt)
        for _ in range(MAX_TOKENS):
            ids = [*ids, int(self._next(ids, samples).argmax())]
        return TOKENIZER.decode(ids[len(before) :])

    def heard(self, samples: np.ndarray) -> str:
        """The likeliest language."""
        logits = self._next(self._ids(samples, "language", ""), samples)
        return max(NAMES, key=lambda name: float(logits[TOKENIZER.token_to_id(f" {name}")]))

    def _ids(self, samples: np.ndarray, stated: str, prompt: str) -> list[int]:
        frames = max(len(samples), RATE // 2) // 160
        tokens = frames // 100 * 13 + -(-(frames % 100) // 8)
        system = f"<|im_start|>system\n{prompt}<|im_end|>\n" if prompt else ""
        user = f"<|im_start|>user\n{'<|audio_pad|>' * tokens}<|im_end|>\n"
        return TOKENIZER.encode(f"{system}{user}<|im_start|>assistant\n{stated}").ids

    def _next(self, ids: Sequence[int], samples: np.ndarray) -> torch.Tensor:
        options: dict[str, Any] = {"padding": True, "return_attention_mask": True}
        found = _EXTRACTOR(samples, sampling_rate=RATE, **options)
        with torch.inference_mode():
            return self.reference(
                input_ids=torch.tensor([ids]),
                input_features=found["input_features"],
                input_features_mask=found["attention_mask"],
            ).logits[0, -1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("qwen3_asr")
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
    torch.manual_seed(3)
    reference = save(Qwen3ASRForConditionalGeneration(config), folder)
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


@pytest.mark.parametrize("seconds", [0.2, 3, 9])
def test_text(served: Served, seconds: float) -> None:
    noise = np.random.default_rng(int(seconds)).normal(size=int(seconds * RATE))
    samples = noise.astype("f4") * 0.1
    german = served.post(samples, language="de", prompt="Names: Ada, Lin.")
    assert german.status_code == 200, german.text
    text = german.json()["text"]
    assert set(text) <= set(string.ascii_lowercase) and len(text) == MAX_TOKENS
    assert text == served.text(samples, "German", "Names: Ada, Lin.")
    heard = served.post(samples)
    assert heard.status_code == 200, heard.text
    assert heard.json()["text"] == served.text(samples, served.heard(samples))


def test_refusals(served: Served) -> None:
    silence = np.zeros(RATE, np.float32)
    for field, value in (("response_format", "srt"), ("language", "tlh")):
        answer = served.post(silence, **{field: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field
