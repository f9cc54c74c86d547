"""A tiny model of Cohere's that writes what it hears, on disk, and what `transformers` makes of
it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CohereAsrConfig, CohereAsrForConditionalGeneration, PreTrainedModel
from transformers.models.cohere_asr.feature_extraction_cohere_asr import CohereAsrFeatureExtractor

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

BINS = 16
PLACEHOLDER = 3
AUDIO = [PLACEHOLDER]
POSITIONS = 100
_SAMPLES = 160 * 8  # of a vector
_ENCODER: dict[str, Any] = {
    "hidden_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 52,
    "conv_kernel_size": 5,
    "subsampling_conv_channels": 6,
    "num_mel_bins": BINS,
}
EXTRACTOR = CohereAsrFeatureExtractor(feature_size=BINS, dither=0.0)


class CohereAsrModel(MediaTestModel):
    argument = "audios"


def config(encoder: dict[str, Any] | None = None, **changes: Any) -> CohereAsrConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 257,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 72,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": PLACEHOLDER,
        "eos_token_id": 2,
    }
    return CohereAsrConfig(**(sizes | changes), encoder_config=_ENCODER | (encoder or {}))


def cohere_asr(path: Path, made: CohereAsrConfig | None = None) -> MediaTestModel:
    """A checkpoint of random weights, and the model that reads it."""
    torch.manual_seed(0)
    model = CohereAsrForConditionalGeneration(made or config())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 or "bias" in name:
                parameter.normal_(std=0.2)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    return with_reference(path, save(model, path))


def tokens(samples: int) -> int:
    """Those of a recording of so many samples."""
    return -(-(samples // 160) // 8)


def with_reference(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        """The ids of a prompt begin with the tokens of its recording."""
        (own,) = audios
        count = tokens(len(own))
        assert ids[:count] == AUDIO * count and ids[count] != PLACEHOLDER
        with torch.inference_mode():
            found = EXTRACTOR(own, sampling_rate=16000, return_tensors="pt")
            decoded = torch.tensor([ids[count:]])
            rows = reference(
                found["input_features"],
                attention_mask=found["attention_mask"],
                decoder_input_ids=decoded,
                use_cache=False,
            ).logits[0]
        return torch.cat([torch.zeros(count, rows.shape[1]), rows])

    return CohereAsrModel(path, logits)


def recording(seed: int, samples: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=samples)
    return (noise * np.linspace(0.01, 0.3, samples)).astype(np.float32)
