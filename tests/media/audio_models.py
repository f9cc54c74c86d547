"""Tiny models with audio on disk, and their references in `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.models.log_mel import HOP
from transformers import (
    LlamaConfig,
    Qwen2AudioConfig,
    Qwen2AudioEncoderConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2Config,
    VoxtralConfig,
    VoxtralEncoderConfig,
    VoxtralForConditionalGeneration,
    WhisperFeatureExtractor,
)

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

BINS, FRAMES = 7, 40  # of log-mel; of the audio that an encoder takes
MOST = FRAMES * HOP  # samples of it
PLACEHOLDER = 3

_TEXT = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


class AudioModel(MediaTestModel):
    """One whose media are samples [samples]."""

    argument = "audios"


def audio(seed: int, samples: int) -> np.ndarray:
    """Noise, which is louder towards its end."""
    noise = np.random.default_rng(seed).normal(size=samples)
    return (noise * np.linspace(0.01, 0.3, samples)).astype(np.float32)


def qwen2_audio(path: Path) -> MediaTestModel:
    """A checkpoint whose encoder takes 0.4 s."""
    encoder = Qwen2AudioEncoderConfig(
        num_mel_bins=BINS,
        d_model=36,
        encoder_layers=2,
        encoder_attention_heads=3,
        encoder_ffn_dim=56,
        max_source_positions=FRAMES // 2,
    )
    config = Qwen2AudioConfig(
        audio_config=encoder, text_config=Qwen2Config(**_TEXT), audio_token_index=PLACEHOLDER
    )
    torch.manual_seed(0)
    reference = save(Qwen2AudioForConditionalGeneration(config), path)

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        inputs: dict[str, Any] = {}
        if audios:
            options: dict[str, Any] = {"max_length": MOST, "return_attention_mask": True}
            found = _EXTRACTOR(list(audios), sampling_rate=16000, return_tensors="pt", **options)
            inputs = {
                "input_features": found["input_features"],
                "feature_attention_mask": found["attention_mask"],
            }
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            return reference(
                prompt, attention_mask=torch.ones_like(prompt), use_cache=False, **inputs
            ).logits[0]

    return AudioModel(path, logits)


def voxtral(path: Path) -> MediaTestModel:
    """A checkpoint whose encoder takes 0.4 s at a time."""
    encoder = VoxtralEncoderConfig(
        num_mel_bins=BINS,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        max_source_positions=FRAMES // 2,
    )
    config = VoxtralConfig(
        audio_config=encoder, text_config=LlamaConfig(**_TEXT), audio_token_id=PLACEHOLDER
    )
    torch.manual_seed(0)
    reference = save(VoxtralForConditionalGeneration(config), path)

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        parts = [
            _EXTRACTOR(
                each,
                sampling_rate=16000,
                return_tensors="pt",
                truncation=False,
                padding=True,
                pad_to_multiple_of=MOST,
            )["input_features"]
            .reshape(BINS, -1, FRAMES)
            .transpose(0, 1)
            for each in audios
        ]
        features = {"input_features": torch.cat(parts)} if parts else {}
        with torch.inference_mode():
            return reference(torch.tensor([ids]), use_cache=False, **features).logits[0]

    return AudioModel(path, logits)
