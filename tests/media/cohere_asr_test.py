"""Cohere's speech to text through the engine: the rows of a recording, as many as it needs, are the
first tokens of a decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.models.audio.normalized_mel import LEAST_SAMPLES, normalized_log_mel
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.cohere_asr import CohereAsrModel
from pagemill.runner.build import BuildOptions, model_shapes
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.cohere_asr_models import (
    AUDIO,
    BINS,
    EXTRACTOR,
    PLACEHOLDER,
    POSITIONS,
    cohere_asr,
    config,
    recording,
    tokens,
)
from tests.media.media_model import MediaTestModel, text

LENGTHS = [LEAST_SAMPLES, 7 * 160, 8 * 160, 17 * 160 - 1, 40 * 160 + 7, 98 * 160]


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return cohere_asr(tmp_path_factory.mktemp("cohere_asr"))


def test_log_mel_is_that_of_the_extractor() -> None:
    for samples in (LEAST_SAMPLES, 30_000):
        own = recording(1, samples)
        found = EXTRACTOR(own, sampling_rate=16000, return_tensors="pt")["input_features"][0]
        frames = samples // 160
        expected = found[:frames].numpy()
        np.testing.assert_allclose(normalized_log_mel(own, BINS), expected, rtol=0, atol=2e-4)
        assert not found[frames:].any()


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_recordings_of_several_lengths(speech: MediaTestModel, executor: str) -> None:
    """They end within vectors, and within what convolutions read of them; several in a step."""
    prompts = [AUDIO + text(i, 2 + 5 * i) for i in range(len(LENGTHS))]
    audios = [[recording(i, samples)] for i, samples in enumerate(LENGTHS)]
    options: dict[str, Any] = {"max_model_len": POSITIONS, "max_num_seqs": 8}
    with speech.llm(executor=executor, **options) as llm:
        outputs = speech.generate(llm, prompts, audios, logprobs=0)
    for output, samples, own in zip(outputs, LENGTHS, audios, strict=True):
        assert output.prompt_token_ids.count(PLACEHOLDER) == tokens(samples)
        speech.check(output, own)


@pytest.mark.parametrize(
    ("encoder", "changes"),
    [
        ({"attention_bias": False, "convolution_bias": False}, {"hidden_act": "gelu"}),
        ({"scale_input": True, "conv_kernel_size": 9}, {"head_dim": 10}),
    ],
)
def test_other_settings(tmp_path: Path, encoder: dict[str, Any], changes: dict[str, Any]) -> None:
    model = cohere_asr(tmp_path, config(encoder, **changes))
    prompts, audios = [AUDIO + text(1, 4)], [[recording(1, 5000)]]
    assert model.check_all(prompts, audios, max_model_len=POSITIONS) == 1


def test_names_without_model_in_front(speech: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(speech.path / "model.safetensors")
    save_file(
        {name.removeprefix("model."): tensor for name, tensor in tensors.items()},
        tmp_path / "model.safetensors",
    )
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((speech.path / name).read_bytes())
    model, own = type(speech)(tmp_path, speech.reference), [recording(1, 5000)]
    assert model.check_all([AUDIO + text(1, 4)], [own], max_model_len=POSITIONS) == 1


def test_ranks(speech: MediaTestModel) -> None:
    """Rank 0 hears, both decode."""
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3)]
    audios = [[recording(1, 9000)], [recording(2, 4000)]]
    with speech.llm(tensor_parallel_size=2, max_model_len=POSITIONS) as llm:
        for output, own in zip(speech.generate(llm, prompts, audios), audios, strict=True):
            speech.check(output, own)


def test_what_is_no_recording_is_refused(speech: MediaTestModel) -> None:
    with speech.llm(max_model_len=POSITIONS) as llm:

        def refuse(message: str, prompt: list[int], *audios: np.ndarray) -> None:
            speech.check_refused(llm, prompt, audios, message)

        own = recording(1, 2000)
        refuse("has one recording, this one has 0: send audio to /v1/audio", text(1, 3))
        refuse(
            r"begins with its recording; that of this one has 2 and begins at token 3",
            text(1, 3) + AUDIO,
            own,
        )
        refuse("has tokens behind its recording", AUDIO, own)
        refuse(r"320 to 560000 of them \(35 s\), got \[319\]", AUDIO, own[:319])
        refuse(r"got \[560001\]", AUDIO, recording(1, 560_001))
        refuse(r"got \[1000, 2\]", AUDIO, own.reshape(1000, 2))


def test_tensors_are_known_without_files(speech: MediaTestModel) -> None:
    source = ModelSource.open(speech.path)
    stored = {tensor.name.removeprefix("model.") for tensor in source.tensors}
    read = {name for name in stored if not name.endswith("num_batches_tracked")}
    assert model_shapes(source, BuildOptions()).keys() == read


@pytest.mark.parametrize(
    ("encoder", "changes", "message"),
    [
        ({"subsampling_factor": 4}, {}, "subsampling_factor of encoder_config must be 8"),
        ({"conv_kernel_size": 4}, {}, "conv_kernel_size is 4; odd ones, at most 64"),
        (
            {"num_attention_heads": 5, "num_key_value_heads": 5},
            {},
            "5 heads cannot share 36 features",
        ),
        ({"num_mel_bins": 20}, {}, "num_mel_bins is 20; it must be a multiple of 8"),
        ({"num_key_value_heads": 1}, {}, "of encoder_config must be its heads"),
        ({}, {"num_key_value_heads": 2}, "num_key_value_heads must be num_attention_heads"),
        ({}, {"tie_word_embeddings": True}, "tie_word_embeddings=True is not supported"),
        ({}, {"attention_bias": False}, "attention_bias must be true"),
        ({}, {"pad_token_id": 257}, "outside the vocabulary"),
    ],
)
def test_refusals(encoder: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    whole = config().to_dict()
    whole = {**whole, **changes, "encoder_config": {**whole["encoder_config"], **encoder}}
    with pytest.raises(ModelConfigError, match=message):
        CohereAsrModel.from_config(whole)
