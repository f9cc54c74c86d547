"""Cohere's speech to text over HTTP: what a server writes of a file is what `transformers` finds
behind the prompt of its processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.render.transcription.clips import cut
from pagemill.render.transcription.testing.speech_tokenizers import (
    COHERE_ASR_CONTROL,
    byte_tokenizer,
)
from transformers import CohereAsrConfig, CohereAsrForConditionalGeneration
from transformers.models.cohere_asr.feature_extraction_cohere_asr import CohereAsrFeatureExtractor
from transformers.models.cohere_asr.processing_cohere_asr import CohereAsrProcessor

from tests.transcription.transcribing_server import (
    BINS,
    MAX_TOKENS,
    RATE,
    TranscribingServer,
    is_letters,
    serve_letters,
)

TOKENIZER = byte_tokenizer(COHERE_ASR_CONTROL)
_EXTRACTOR = CohereAsrFeatureExtractor(feature_size=BINS, dither=0.0)


class CohereServer(TranscribingServer):
    """A running server of a model whose decoder attends to what was heard."""

    def next_logits(self, ids: Any, heard: Any) -> torch.Tensor:
        with torch.inference_mode():
            return self.reference(decoder_input_ids=torch.tensor([ids]), **heard).logits[0, -1]


def reference_text(served: TranscribingServer, samples: np.ndarray) -> str:
    """What `transformers` finds of each clip."""
    tokens = _Tokens()
    prompt = CohereAsrProcessor.get_decoder_prompt_ids(tokens, "de")  # type: ignore[arg-type]
    text = ""
    for clip in cut(samples, RATE, 35):
        found = _EXTRACTOR(clip.samples, sampling_rate=RATE, return_tensors="pt")
        heard = {key: found[key] for key in ("input_features", "attention_mask")}
        text += served.text_behind(prompt, heard)
    return text


class _Tokens:
    """What the processor reads of its tokenizer, whose class needs files."""

    @property
    def tokenizer(self) -> _Tokens:
        return self

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        return [TOKENIZER.token_to_id(token) for token in tokens]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CohereServer]:
    config = CohereAsrConfig(
        vocab_size=TOKENIZER.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=500,
        pad_token_id=TOKENIZER.token_to_id("<pad>"),
        eos_token_id=TOKENIZER.token_to_id("<|endoftext|>"),
        encoder_config={
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "subsampling_conv_channels": 4,
            "num_mel_bins": BINS,
        },
    )
    model = CohereAsrForConditionalGeneration(config)
    with serve_letters(model, TOKENIZER, _EXTRACTOR, "", tmp_path_factory) as server:
        yield CohereServer(server.server, server.reference, server.tokenizer)


@pytest.mark.parametrize("seconds", [3, 40])
def test_text(served: CohereServer, seconds: int) -> None:
    samples = np.random.default_rng(seconds).normal(size=seconds * RATE).astype("f4") * 0.1
    text = reference_text(served, samples)
    clips = len(cut(samples, RATE, 35))
    assert len(text) == clips * MAX_TOKENS and is_letters(text[:MAX_TOKENS])
    answer = served.post(samples, language="de")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"text": text, "usage": {"type": "duration", "seconds": seconds}}


def test_refusals(served: CohereServer) -> None:
    own = np.zeros(RATE, np.float32)
    for fields, param in (({}, "language"), ({"language": "de", "prompt": "a"}, "prompt")):
        answer = served.post(own, **fields)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param
    short = served.post(own[:300], language="de")
    assert short.status_code == 400 and "320 to 560000" in short.json()["error"]["message"]
