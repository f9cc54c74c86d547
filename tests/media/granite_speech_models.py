"""A tiny Granite Speech model, and what `transformers` makes of audio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.models.audio.log_mel import HOP
from transformers import (
    Blip2QFormerConfig,
    GraniteConfig,
    GraniteSpeechConfig,
    GraniteSpeechEncoderConfig,
    GraniteSpeechForConditionalGeneration,
    GraniteSpeechPlusConfig,
    GraniteSpeechPlusEncoderConfig,
    GraniteSpeechPlusForConditionalGeneration,
    PreTrainedModel,
)
from transformers.audio_utils import mel_filter_bank

from tests.media.audio_models import PLACEHOLDER, AudioModel
from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

BINS, WINDOW, RATE = 8, 6, 2  # a window of the projector has three queries
_ENCODER: dict[str, Any] = {
    "input_dim": 2 * BINS,
    "num_layers": 4,
    "hidden_dim": 24,
    "feedforward_mult": 2,
    "num_heads": 3,
    "output_dim": 5,
    "context_size": 7,
    "max_pos_emb": 9,
    "conv_kernel_size": 5,
}
_TEXT = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
}


def log_mel(samples: np.ndarray) -> torch.Tensor:
    """[frames, BINS], as the feature extractor has them, which needs torchaudio."""
    window = torch.hann_window(400)
    spectrum = torch.stft(torch.tensor(samples), 512, HOP, 400, window, return_complex=True)
    filters = mel_filter_bank(257, BINS, 0.0, 8000.0, 16000, norm=None, mel_scale="htk")
    mel = spectrum.abs().square().T @ torch.tensor(filters, dtype=torch.float32)
    logarithms = mel.clip(min=1e-10).log10()
    return torch.maximum(logarithms, logarithms.max() - 8.0) / 4 + 1


def _projector(width: int) -> Blip2QFormerConfig:
    return Blip2QFormerConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=40,
        encoder_hidden_size=width,
        cross_attention_frequency=2,
    )


def _model(path: Path, reference: PreTrainedModel) -> tuple[PreTrainedModel, MediaTestModel]:
    torch.manual_seed(1)
    for name, tensor in reference.named_buffers():
        if name.endswith("running_mean"):
            tensor.normal_()
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2)
    save(reference, path)

    def sound(samples: np.ndarray) -> torch.Tensor:
        mel = log_mel(samples)
        pairs = mel[: len(mel) // 2 * 2].reshape(1, -1, 2 * BINS)
        return reference.get_audio_features(pairs).pooler_output[0]

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            embedded = reference.get_input_embeddings()(prompt)
            if audios:
                embedded[prompt == PLACEHOLDER] = torch.cat([sound(each) for each in audios])
            return reference(inputs_embeds=embedded, use_cache=False).logits[0]

    return reference, AudioModel(path, logits)


def granite_speech(path: Path, **encoder: Any) -> tuple[PreTrainedModel, MediaTestModel]:
    """The reference, and a checkpoint of Granite Speech without an adapter, or with settings of its
    `encoder` of Granite Speech Plus."""
    torch.manual_seed(0)
    common: dict[str, Any] = {
        "text_config": GraniteConfig(**_TEXT),
        "audio_token_index": PLACEHOLDER,
        "window_size": WINDOW,
        "downsample_rate": RATE,
        "has_lora_adapter": False,
    }
    width = _ENCODER["hidden_dim"] * (1 + len(encoder.get("cat_hidden_layers", ())))
    if not encoder:
        own = GraniteSpeechEncoderConfig(**_ENCODER)
        config = GraniteSpeechConfig(
            encoder_config=own, projector_config=_projector(width), **common
        )
        return _model(path, GraniteSpeechForConditionalGeneration(config).eval())
    config = GraniteSpeechPlusConfig(
        encoder_config=GraniteSpeechPlusEncoderConfig(**_ENCODER, **encoder),
        projector_config=_projector(width),
        **common,
    )
    return _model(path, GraniteSpeechPlusForConditionalGeneration(config).eval())
