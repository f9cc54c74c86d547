"""Granite Speech through the engine: the tokens are those of `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pagemill.engine.outputs import EngineError
from pagemill.models.audio.htk_mel import LEAST_SAMPLES, htk_log_mel
from pagemill.models.audio.log_mel import HOP
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.granite_speech import GraniteSpeechModel
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.audio_models import PLACEHOLDER, AudioModel, audio
from tests.media.granite_speech_models import BINS, RATE, WINDOW, granite_speech, log_mel
from tests.media.media_model import MediaTestModel, newer_name, text

AUDIO = [PLACEHOLDER]


@pytest.fixture(scope="module", name="speech")
def _speech(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return granite_speech(tmp_path_factory.mktemp("granite_speech"))[1]


def _tokens(samples: int) -> int:
    pairs = (samples // HOP + 1) // 2
    return -(-pairs // WINDOW) * (WINDOW // RATE)


def test_log_mel_is_that_of_the_extractor() -> None:
    for samples in (LEAST_SAMPLES, 30_000):
        expected, found = log_mel(audio(1, samples)), htk_log_mel(audio(1, samples), BINS)
        np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_granite_speech(speech: MediaTestModel, executor: str) -> None:
    """Audio that ends within windows, chunks and taps, several in a step."""
    lengths = [LEAST_SAMPLES, 11 * HOP, 12 * HOP - 1, 14 * HOP, 19 * HOP, 40 * HOP + 7]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, samples), audio(2, 3000)] for samples in lengths]
    with speech.llm(executor=executor) as llm:
        outputs = speech.generate(llm, [prompt] * len(lengths), audios, logprobs=0)
    for output, own in zip(outputs, audios, strict=True):
        tokens = sum(_tokens(len(each)) for each in own)
        assert output.prompt_token_ids.count(PLACEHOLDER) == tokens
        speech.check(output, own)


def test_granite_speech_plus(tmp_path: Path) -> None:
    """Its projector also reads what is in front of the layers, and in the middle of them."""
    _, model = granite_speech(tmp_path, cat_hidden_layers=[0, 2, 3])
    with model.llm() as llm:
        own = [audio(1, 40 * HOP)]
        (output,) = model.generate(llm, [AUDIO + text(1, 5)], [own], logprobs=0)
        model.check(output, own)


def test_names_with_all_parts_behind_model(speech: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(speech.path / "model.safetensors")
    newer = {newer_name(name): tensor for name, tensor in tensors.items()}
    save_file(newer, tmp_path / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((speech.path / name).read_bytes())
    model, own = AudioModel(tmp_path, speech.reference), [audio(1, 20 * HOP)]
    with model.llm() as llm:
        (output,) = model.generate(llm, [AUDIO + text(1, 5)], [own], logprobs=0)
        model.check(output, own)


def test_audio_that_does_not_fit_is_refused(speech: MediaTestModel) -> None:
    with speech.llm() as llm:
        for own, why in (
            (audio(1, LEAST_SAMPLES - 1), rf"at least {LEAST_SAMPLES} of them, got \[256\]"),
            (audio(1, 2 * LEAST_SAMPLES).reshape(2, -1), r"must be \[samples\]"),
            (audio(1, 2000 * HOP), "tokens"),
        ):
            with pytest.raises(EngineError, match=why) as refused:
                speech.generate(llm, [AUDIO], [[own]])
            assert refused.value.code == "INVALID_ARGUMENT"


def test_configurations_that_are_refused(speech: MediaTestModel) -> None:
    config = ModelSource.open(speech.path).config
    for part, changes, why in (
        ("encoder_config", {"context_size": 10}, "max_pos_emb has 9 distances"),
        ("encoder_config", {"output_dim": 1025}, "at most 1024 are supported"),
        ("encoder_config", {"conv_kernel_size": 65}, "at most 64 are supported"),
        ("encoder_config", {"cat_hidden_layers": [4]}, "must list some of 4 layers"),
        ("encoder_config", {"input_dim": 15}, "input_dim 15 must be even"),
        ("projector_config", {"use_qformer_text_input": True}, "use_qformer_text_input false"),
        ("projector_config", {"encoder_hidden_size": 32}, "the encoder has 24"),
        ("projector_config", {"num_attention_heads": 3}, "3 heads cannot share 32"),
    ):
        changed = {**config, part: {**config[part], **changes}}
        with pytest.raises(ModelConfigError, match=why):
            GraniteSpeechModel.from_config(changed)
    with pytest.raises(ModelConfigError, match="window_size 6 is not a multiple of 4"):
        GraniteSpeechModel.from_config({**config, "downsample_rate": 4})


def test_ranks_stages_and_text_alone(speech: MediaTestModel) -> None:
    speech.check_divided()
    speech.check_language_model_only("depth_conv.", audio(1, 3000))
