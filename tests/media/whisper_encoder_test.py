"""Whisper's encoder computes what that of `transformers` does, in both executors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.models.audio.whisper_encoder import WhisperEncoder
from pagemill.ops.program import ACT
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner.build import text_of
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource
from transformers import WhisperConfig, WhisperForConditionalGeneration

from tests.parity.tiny_models import save

BINS, TOKENS = 5, 11


def whisper(**changes: Any) -> WhisperForConditionalGeneration:
    """A model of 22 frames, of which the encoder is used."""
    sizes: dict[str, Any] = {
        "vocab_size": 90,
        "num_mel_bins": BINS,
        "d_model": 36,
        "encoder_layers": 2,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 56,
        "decoder_layers": 1,
        "decoder_attention_heads": 3,
        "decoder_ffn_dim": 8,
        "max_source_positions": TOKENS,
        "max_target_positions": 8,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }
    return WhisperForConditionalGeneration(WhisperConfig(**(sizes | changes)))


def mel(seed: int, frames: int = 2 * TOKENS) -> np.ndarray:
    """Log-mel frames, which lie around 0."""
    return np.random.default_rng(seed).normal(size=(BINS, frames)).astype(np.float32)


def program_of(source: ModelSource, config: Mapping[str, Any]) -> tuple[WhisperEncoder, str]:
    """The encoder of a whole model, and its program from features to vectors."""
    encoder = WhisperEncoder(config)
    weights = WeightBinder(Trace(), source).within("model.encoder.")
    trace = weights.trace
    rows = trace.input("features", ACT, ("tokens", encoder.channels))
    positions = trace.input("positions", "i32", ("tokens",))
    trace.output("embeddings", encoder.hidden(weights, rows, positions))
    return encoder, text_of(trace.program)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_vectors(activation: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = save(whisper(activation_function=activation), tmp_path).model.encoder
    mels = [mel(1), mel(2)]
    with torch.inference_mode():
        expected = reference(torch.tensor(np.stack(mels))).last_hidden_state
    source = ModelSource.open(tmp_path)
    encoder, text = program_of(source, source.config)
    tokens = np.arange(2 * TOKENS, dtype=np.int32)
    batch = {
        "token_ids": tokens * 0,
        "positions": tokens % TOKENS,
        "query_start": np.array([0, TOKENS, 2 * TOKENS], np.int32),
        "seq_lens": np.array([TOKENS, TOKENS], np.int32),
        "logits_rows": tokens[:0],
        "media_rows": tokens,
        "kv": [],
        "inputs": {"features": np.concatenate([encoder.features(each) for each in mels])},
    }
    for run in (
        _native.NativeExecutor(text, _native.ExecutorOptions(activation_dtype="f32")),
        TorchExecutor(text, TorchOptions()),
    ):
        found = run(batch)["embeddings"].reshape(expected.shape)
        np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=2e-5)


def test_frames_that_do_not_fit_are_refused() -> None:
    encoder = WhisperEncoder(whisper().config.to_dict())
    assert encoder.features(mel(1, 4)).shape == (2, 5 * BINS + 2)
    assert encoder.features(mel(1), 3).shape == (3, 5 * BINS + 2)
    for bad in (mel(1)[:4], mel(1, 3), mel(1, 2 * TOKENS + 2), mel(1, 0)):
        with pytest.raises(ValueError, match=r"audio must be \[5, frames\]"):
            encoder.features(bad)
