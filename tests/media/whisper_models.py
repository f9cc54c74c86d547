"""A tiny Whisper on disk, and what `transformers` makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.models.audio.log_mel import HOP
from transformers import (
    PreTrainedModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

BINS, FRONT = 7, 21  # of log-mel; rows of the encoder
MOST = 2 * FRONT * HOP  # samples of a recording
PLACEHOLDER = 3
AUDIO = [PLACEHOLDER]
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


class WhisperModel(MediaTestModel):
    argument = "audios"


def config(**changes: Any) -> WhisperConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 257,
        "num_mel_bins": BINS,
        "d_model": 40,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 56,
        "decoder_ffn_dim": 72,
        "max_source_positions": FRONT,
        "max_target_positions": 90,
        "pad_token_id": PLACEHOLDER,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 4,
    }
    return WhisperConfig(**(sizes | changes))


def whisper(path: Path, **changes: Any) -> MediaTestModel:
    """A checkpoint, and the model that reads it."""
    torch.manual_seed(0)
    reference = WhisperForConditionalGeneration(config(**changes))
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.ndim > 1 or "bias" in name:
                parameter.normal_(std=0.2)
    return with_reference(path, save(reference, path))


def with_reference(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        """The ids of a prompt begin with the tokens of its recording."""
        assert ids[:FRONT] == AUDIO * FRONT
        found = _EXTRACTOR(list(audios), sampling_rate=16000, return_tensors="pt", max_length=MOST)[
            "input_features"
        ]
        with torch.inference_mode():
            decoded = torch.tensor([ids[FRONT:]])
            rows = reference(found, decoder_input_ids=decoded, use_cache=False).logits[0]
        return torch.cat([torch.zeros(FRONT, rows.shape[1]), rows])

    return WhisperModel(path, logits)


def recording(seed: int, samples: int = MOST) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=samples)
    return (noise * np.linspace(0.01, 0.3, samples)).astype(np.float32)
