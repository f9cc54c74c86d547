"""Audio of Phi-4 multimodal through the engine: tokens are those of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.engine.outputs import EngineError
from pagemill.models.audio.kaldi_mel import kaldi_log_mel
from pagemill.models.audio.log_mel import HOP, WINDOW
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.phi4_multimodal import Phi4MultimodalModel
from pagemill.weights.source import ModelSource

from tests.media.audio_models import audio
from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.phi4_models import AUDIO_PLACEHOLDER, BINS, PLACEHOLDER, image, log_mel, phi4_audio

AUDIO = [AUDIO_PLACEHOLDER]
CHUNK = 500 * 8 * HOP  # samples of vectors that see each other


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return phi4_audio(tmp_path_factory.mktemp("phi4_audio"))


def _samples(frames: int) -> int:
    return WINDOW + (frames - 1) * HOP


def test_log_mel_is_that_of_the_extractor() -> None:
    for samples in (WINDOW, WINDOW + HOP - 1, 40_000):
        expected = log_mel(audio(1, samples)).numpy()
        found = kaldi_log_mel(audio(1, samples), BINS)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_audio(model: MediaTestModel, executor: str) -> None:
    """Of a number of frames with each rest of eight."""
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(i, _samples(8 + i)), audio(9, _samples(3))] for i in range(8)]
    audios.append([audio(10, _samples(1)), audio(11, _samples(2))])
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, [prompt] * len(audios), audios, logprobs=0)
    for i, (output, own) in enumerate(zip(outputs, audios, strict=True)):
        tokens = 2 if i == 8 else -(-(8 + i) // 8) + 1
        assert output.prompt_token_ids.count(AUDIO_PLACEHOLDER) == tokens
        model.check(output, own)


def test_longer_audio_is_encoded_in_chunks(model: MediaTestModel) -> None:
    """Zeros fill up the last one, and are seen."""
    own = [audio(1, CHUNK + 5000)]
    with model.llm(max_model_len=600) as llm:
        (output,) = model.generate(llm, [AUDIO + text(1, 5)], [own], logprobs=0)
        assert encoded(llm) == 2
        model.check(output, own)


def test_audio_beside_images_is_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        prompt = [*AUDIO, PLACEHOLDER]
        with pytest.raises(EngineError, match="without other media: send") as refused:
            llm.generate([prompt], images=[[image(1, 4, 4)]], audios=[[audio(1, 3000)]])
        assert refused.value.code == "INVALID_ARGUMENT"
        with pytest.raises(EngineError, match=r"at least 400 of them, got \[399\]"):
            model.generate(llm, [AUDIO], [[audio(1, WINDOW - 1)]])


def test_configurations_that_are_refused(model: MediaTestModel) -> None:
    config = ModelSource.open(model.path).config
    changes: list[tuple[dict[str, Any], str]] = [
        ({"time_reduction": 4}, "time_reduction of audio_config must be 8"),
        ({"ext_pw_out_channel": 8}, "ext_pw_out_channel of audio_config must be its hidden_size"),
        ({"chunk_size": 18}, "chunk_size of audio_config must be -1"),
        ({"kernel_size": 65}, "kernel_size of audio_config must be at most 64"),
        ({"bias_max_distance": 400}, "bias_max_distance at least 500"),
        ({"num_attention_heads": 3}, "3 heads cannot share 16 features"),
    ]
    for changed, why in changes:
        part = {**config["audio_config"], **changed}
        with pytest.raises(ModelConfigError, match=why):
            Phi4MultimodalModel.from_config({**config, "audio_config": part})


def test_ranks_stages_and_text_alone(model: MediaTestModel, tmp_path: Path) -> None:
    model.check_divided()
    model.check_language_model_only("dw_conv.", audio(1, 3000))
