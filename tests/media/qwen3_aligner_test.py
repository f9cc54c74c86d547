"""Qwen3-ASR's aligner: the classes of tokens, which are times, are those of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.models.audio.log_mel import HOP
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import Qwen3ASRConfig, Qwen3ASRFeatureExtractor, Qwen3ASRForTokenClassification

from tests.media.audio_models import CHUNK, PLACEHOLDER, AudioModel, audio
from tests.media.media_model import MediaTestModel, text
from tests.parity.tiny_models import save

BINS, CLASSES, TIMESTAMP = 11, 37, 9
TOLERANCE = 2e-5  # of probabilities; both sides compute in f32


def aligner(path: Path, **changes: Any) -> MediaTestModel:
    """A checkpoint; `changes` are fields of its configuration. Its reference gives the scores of
    classes, [tokens, classes]."""
    encoder = {
        "num_mel_bins": BINS,
        "d_model": 36,
        "encoder_layers": 2,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 56,
        "n_window": CHUNK // 2,
        "n_window_infer": 2 * CHUNK,
        "downsample_hidden_size": 5,
        "output_dim": 64,
    }
    decoder = {
        "model_type": "qwen3",
        "vocab_size": 257,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
    }
    config = Qwen3ASRConfig(
        audio_config=encoder,
        text_config=decoder,
        audio_token_id=PLACEHOLDER,
        timestamp_token_id=TIMESTAMP,
        eos_token_id=0,
        pad_token_id=0,
        num_labels=CLASSES,
        **changes,
    )
    torch.manual_seed(0)
    reference = save(Qwen3ASRForTokenClassification(config), path)
    extractor = Qwen3ASRFeatureExtractor(feature_size=BINS)

    def scores(ids: list[int], audios: Any) -> torch.Tensor:
        found = extractor(
            list(audios), sampling_rate=16_000, padding=True, return_attention_mask=True
        )
        with torch.inference_mode():
            return reference(
                torch.tensor([ids]),
                input_features=found["input_features"],
                input_features_mask=found["attention_mask"],
            ).logits[0]

    return AudioModel(path, scores)


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return aligner(tmp_path_factory.mktemp("aligner"))


def check(model: MediaTestModel, llm: LLM, samples: np.ndarray) -> None:
    """The classes of two words with two times each."""
    words = [text(seed, 2) for seed in (1, 2)]
    behind = [token for word in words for token in (TIMESTAMP, *word, TIMESTAMP)]
    (rows,) = llm.encode([[PLACEHOLDER, *behind]], audios=[[samples]])
    frames = max(50, len(samples) // HOP)
    tokens = frames // CHUNK * 13 + -(-(frames % CHUNK) // 8)
    ids = [PLACEHOLDER] * tokens + behind
    expected = model.reference(ids, [samples]).softmax(-1).numpy()
    np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE)
    assert np.ptp(expected, axis=0).max() > 1000 * TOLERANCE, "tokens have their own"


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_classes_of_tokens(model: MediaTestModel, executor: str) -> None:
    """Also of audio in several windows, and of prompts in chunks."""
    with model.llm(executor=executor, max_num_batched_tokens=32) as llm:
        assert len(llm.labels) == CLASSES
        for frames in (20, CHUNK, 3 * CHUNK + 41):
            check(model, llm, audio(frames, frames * HOP))


def test_rows_of_timestamps_alone(model: MediaTestModel) -> None:
    prompt, samples = [PLACEHOLDER, TIMESTAMP, 40, TIMESTAMP], audio(1, 8000)
    with model.llm() as llm:
        (whole,) = llm.encode([prompt], audios=[[samples]])
    with model.llm(hf_overrides={"step_tag_id": TIMESTAMP}) as llm:
        (rows,) = llm.encode([prompt], audios=[[samples]])
    np.testing.assert_allclose(rows, whole[[-3, -1]], rtol=0, atol=TOLERANCE)


def test_a_head_with_a_bias(tmp_path: Path) -> None:
    model = aligner(tmp_path, token_classification_bias=True)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["score.bias"].abs().max() > 0.01
    with model.llm() as llm:
        check(model, llm, audio(1, 9000))
    del tensors["score.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"score\.bias"):
        build(ModelSource.open(tmp_path), BuildOptions())


def test_it_does_not_generate(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match="does not generate text"):
        llm.generate([text(1, 3)])
