"""Tiny models with audio on disk, and their references in `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.models.audio.log_mel import HOP
from transformers import (
    AudioFlamingo3Config,
    AudioFlamingo3EncoderConfig,
    AudioFlamingo3ForConditionalGeneration,
    GlmAsrConfig,
    GlmAsrEncoderConfig,
    GlmAsrForConditionalGeneration,
    LlamaConfig,
    PreTrainedModel,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen2AudioConfig,
    Qwen2AudioEncoderConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2Config,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
    VoxtralConfig,
    VoxtralEncoderConfig,
    VoxtralForConditionalGeneration,
    WhisperFeatureExtractor,
)

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

BINS, FRAMES = 7, 40  # of log-mel; of the audio that an encoder takes
CHUNK = 100  # frames that Qwen3's encoders convolve together, and of which they make 13 vectors
OMNI_WINDOW = 6  # vectors of a part of Qwen2.5-Omni's audio, of two frames each
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


def audio_flamingo3(path: Path, **changes: Any) -> MediaTestModel:
    """A checkpoint whose encoder takes 0.4 s at a time; `changes` are fields of its
    configuration."""
    encoder = AudioFlamingo3EncoderConfig(
        num_mel_bins=BINS,
        hidden_size=36,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=56,
        max_source_positions=FRAMES // 2,
    )
    config = AudioFlamingo3Config(
        audio_config=encoder,
        text_config=Qwen2Config(**_TEXT),
        audio_token_id=PLACEHOLDER,
        **changes,
    )
    torch.manual_seed(0)
    reference = save(AudioFlamingo3ForConditionalGeneration(config), path)
    return AudioModel(path, partial(_logits_of_parts, reference))


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


def glm_asr(path: Path) -> MediaTestModel:
    """A checkpoint whose encoder takes 0.4 s at a time, of which each 0.08 s are a token."""
    encoder = GlmAsrEncoderConfig(
        num_mel_bins=BINS,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        intermediate_size=96,
        max_position_embeddings=FRAMES // 2,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
    )
    config = GlmAsrConfig(
        audio_config=encoder, text_config=LlamaConfig(**_TEXT), audio_token_id=PLACEHOLDER
    )
    torch.manual_seed(0)
    reference = save(GlmAsrForConditionalGeneration(config), path)
    return AudioModel(path, partial(_logits_of_parts, reference))


def _logits_of_parts(
    reference: PreTrainedModel, ids: list[int], audios: Sequence[np.ndarray]
) -> torch.Tensor:
    """Of audio that is divided into parts of 0.4 s, with silence behind the last."""
    parts = [each[first : first + MOST] for each in audios for first in range(0, len(each), MOST)]
    inputs: dict[str, Any] = {}
    if parts:
        options: dict[str, Any] = {"max_length": MOST, "return_attention_mask": True}
        found = _EXTRACTOR(parts, sampling_rate=16000, return_tensors="pt", **options)
        inputs = {
            "input_features": found["input_features"],
            "input_features_mask": found["attention_mask"],
        }
    with torch.inference_mode():
        return reference(torch.tensor([ids]), use_cache=False, **inputs).logits[0]


def qwen2_5_omni(path: Path) -> MediaTestModel:
    """A thinker whose encoder takes 0.12 s at a time."""
    config = Qwen2_5OmniThinkerConfig(
        audio_config={
            "num_mel_bins": BINS,
            "d_model": 36,
            "encoder_layers": 2,
            "encoder_attention_heads": 3,
            "encoder_ffn_dim": 56,
            "max_source_positions": FRAMES // 2,
            "n_window": OMNI_WINDOW,
            "output_dim": _TEXT["hidden_size"],
        },
        text_config=_TEXT
        | {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [2, 3, 3],
            },
            "layer_types": ["full_attention"] * 2,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 8,
            "num_heads": 1,
            "intermediate_size": 8,
            "out_hidden_size": _TEXT["hidden_size"],
            "fullatt_block_indexes": [0],
        },
        audio_token_index=PLACEHOLDER,
        image_token_index=4,
        video_token_index=5,
        audio_start_token_id=6,
        audio_end_token_id=7,
        vision_start_token_id=8,
    )
    torch.manual_seed(0)
    reference = save(Qwen2_5OmniThinkerForConditionalGeneration(config), path)

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        inputs: dict[str, Any] = {}
        if audios:
            options: dict[str, Any] = {"max_length": 5 * MOST, "return_attention_mask": True}
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


# An encoder with windows of two chunks, as configurations of Qwen3-Omni and Qwen3-ASR state it.
_QWEN3_ENCODER: dict[str, Any] = {
    "num_mel_bins": 11,
    "d_model": 36,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 56,
    "n_window": CHUNK // 2,
    "n_window_infer": 2 * CHUNK,
    "downsample_hidden_size": 5,
    "output_dim": _TEXT["hidden_size"],
}


def qwen3_omni(path: Path) -> MediaTestModel:
    """A thinker, of which audio alone is used."""
    experts = {"moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
    config = Qwen3OmniMoeThinkerConfig(
        audio_config=_QWEN3_ENCODER,
        text_config=_TEXT
        | experts
        | {
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [4, 2, 2],
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 8,
            "num_heads": 1,
            "intermediate_size": 8,
            "out_hidden_size": _TEXT["hidden_size"],
            "deepstack_visual_indexes": [0],
        },
        audio_token_id=PLACEHOLDER,
        image_token_id=4,
        video_token_id=5,
        audio_start_token_id=6,
        audio_end_token_id=7,
        vision_start_token_id=8,
    )
    torch.manual_seed(0)
    reference = save(Qwen3OmniMoeThinkerForConditionalGeneration(config), path)
    extractor = WhisperFeatureExtractor(feature_size=_QWEN3_ENCODER["num_mel_bins"])

    def sound(samples: np.ndarray) -> torch.Tensor:
        options: dict[str, Any] = {"padding": True, "return_attention_mask": True}
        found = extractor(samples, sampling_rate=16000, return_tensors="pt", **options)
        return reference.get_audio_features(
            found["input_features"], found["attention_mask"].long()
        ).pooler_output

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            embedded = reference.get_input_embeddings()(prompt)
            if audios:
                # One by one: a batch would fill up audio that is shorter than a chunk.
                embedded[prompt == PLACEHOLDER] = torch.cat([sound(each) for each in audios])
            return reference(
                inputs_embeds=embedded,
                attention_mask=torch.ones_like(prompt),
                position_ids=torch.arange(len(ids)).expand(3, 1, -1),
                use_cache=False,
            ).logits[0]

    return AudioModel(path, logits)


def qwen3_asr(path: Path) -> MediaTestModel:
    """A checkpoint whose audio is filled up to half a second."""
    config = Qwen3ASRConfig(
        audio_config=_QWEN3_ENCODER,
        text_config=_TEXT | {"model_type": "qwen3", "head_dim": 16},
        audio_token_id=PLACEHOLDER,
        eos_token_id=0,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    reference = save(Qwen3ASRForConditionalGeneration(config), path)
    extractor = Qwen3ASRFeatureExtractor(feature_size=_QWEN3_ENCODER["num_mel_bins"])

    def sound(samples: np.ndarray) -> torch.Tensor:
        found = extractor(samples, sampling_rate=16000, padding=True, return_attention_mask=True)
        return reference.get_audio_features(
            found["input_features"], found["attention_mask"]
        ).pooler_output

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            embedded = reference.get_input_embeddings()(prompt)
            if audios:
                embedded[prompt == PLACEHOLDER] = torch.cat([sound(each) for each in audios])
            return reference(inputs_embeds=embedded, use_cache=False).logits[0]

    return AudioModel(path, logits)
