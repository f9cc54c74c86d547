"""A tiny MOSS-Transcribe-Diarize on disk, and its reference in `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from pagemill.models.audio.log_mel import HOP
from transformers import (
    MossTranscribeDiarizeConfig,
    MossTranscribeDiarizeFeatureExtractor,
    MossTranscribeDiarizeForConditionalGeneration,
    MossTranscribeDiarizeProcessor,
)

from tests.media.audio_models import PLACEHOLDER, AudioModel
from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

BINS = 7
FRAMES = 56  # of the audio that the encoder takes: 7 tokens, so that times are within windows
MOST = FRAMES * HOP
_ZERO = 15  # the token of "0"
_PROCESSOR: Any = SimpleNamespace(
    audio_token="a", audio_tokens_per_second=12.5, audio_merge_size=4, time_marker_every_seconds=2
)


def moss_transcribe(path: Path, **changes: Any) -> MediaTestModel:
    """A checkpoint whose encoder takes 0.56 s at a time; `changes` are fields of its
    configuration."""
    encoder = {
        "num_mel_bins": BINS,
        "hidden_size": 36,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 56,
        "max_source_positions": FRAMES // 2,
    }
    text = {
        "model_type": "qwen3",
        "vocab_size": 257,
        "hidden_size": 96,
        "intermediate_size": 136,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
    }
    config = MossTranscribeDiarizeConfig(
        audio_config=encoder,
        text_config=text,
        audio_token_id=PLACEHOLDER,
        audio_chunk_size=MOST,
        **changes,
    )
    torch.manual_seed(0)
    reference = save(MossTranscribeDiarizeForConditionalGeneration(config), path)
    chunk: Any = MOST / 16_000  # the class says that it is whole seconds
    extractor = MossTranscribeDiarizeFeatureExtractor(feature_size=BINS, chunk_length=chunk)

    def logits(ids: list[int], audios: Sequence[np.ndarray]) -> torch.Tensor:
        inputs: dict[str, Any] = {}
        if audios:
            found = extractor(list(audios), sampling_rate=16_000, return_tensors="pt")
            inputs = dict(found)
            ids = with_times(ids, audios)
        with torch.inference_mode():
            return reference(torch.tensor([ids]), use_cache=False, **inputs).logits[0]

    return AudioModel(path, logits)


def audio_text(samples: np.ndarray) -> str:
    """What the processor writes in place of audio: `a` for a token, and digits."""
    lengths = [len(samples[first : first + MOST]) for first in range(0, len(samples), MOST)]
    frames = torch.tensor([-(-length // HOP) for length in lengths])
    tokens = MossTranscribeDiarizeProcessor._get_audio_token_length(  # pyright: ignore[reportPrivateUsage]
        _PROCESSOR, frames, torch.zeros(len(lengths), dtype=torch.long)
    )
    return MossTranscribeDiarizeProcessor.replace_audio_token(
        _PROCESSOR, {"num_audio_tokens": tokens}, 0
    )


def with_times(ids: Sequence[int], audios: Sequence[np.ndarray]) -> list[int]:
    """The ids with digits in place of some of the placeholders of each audio, in whose place the
    prompt has nothing but placeholders."""
    written: list[int] = []
    texts = [audio_text(samples) for samples in audios]
    while PLACEHOLDER in ids:
        at = ids.index(PLACEHOLDER)
        text = texts.pop(0)
        assert {*ids[at : at + len(text)]} == {PLACEHOLDER}
        written += ids[:at]
        written += [PLACEHOLDER if each == "a" else _ZERO + int(each) for each in text]
        ids = ids[at + len(text) :]
    assert not texts
    return [*written, *ids]
