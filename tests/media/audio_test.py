"""Audio through the engine: the tokens of Qwen2-Audio and Voxtral are those of `transformers`, with
the features of its extractor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pagemill.engine.outputs import EngineError
from pagemill.models.log_mel import HOP, log_mel, padded
from transformers import WhisperFeatureExtractor

from tests.media.audio_models import FRAMES, MOST, PLACEHOLDER, audio, qwen2_audio, voxtral
from tests.media.image_model import ImageModel, encoded, text

AUDIO = [PLACEHOLDER]


@pytest.fixture(scope="module", name="qwen")
def _qwen(tmp_path_factory: pytest.TempPathFactory) -> ImageModel:
    return qwen2_audio(tmp_path_factory.mktemp("qwen2_audio"))


@pytest.fixture(scope="module", name="vox")
def _vox(tmp_path_factory: pytest.TempPathFactory) -> ImageModel:
    return voxtral(tmp_path_factory.mktemp("voxtral"))


def test_log_mel_is_that_of_the_extractor() -> None:
    samples = audio(1, 70_000)
    for bins in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=bins)
        found = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]
        expected = log_mel(padded(samples, 480_000), bins)
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("executor", ["native", "torch"])
@pytest.mark.parametrize(
    "samples", [3 * HOP, 7 * HOP, 7 * HOP + 1, 9 * HOP - 1, 10 * HOP, 25 * HOP, MOST]
)
def test_qwen2_audio(qwen: ImageModel, samples: int, executor: str) -> None:
    """Also audio of an odd number of the encoder's vectors, of which the last one makes no pair."""
    audios = [audio(1, samples), audio(2, MOST)]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    with qwen.llm(executor=executor) as llm:
        (output,) = qwen.generate(llm, [prompt], [audios], logprobs=0)
        frames = -(-samples // HOP)
        tokens = ((frames - 1) // 2 + 1) // 2
        assert output.prompt_token_ids.count(PLACEHOLDER) == tokens + FRAMES // 4
        qwen.check(output, audios)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_voxtral(vox: ImageModel, executor: str) -> None:
    """Audio that is longer than the encoder takes is encoded in parts."""
    a, b, c = audio(1, 1000), audio(2, 2 * MOST + 500), audio(3, MOST)
    prompts = [
        text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4),
        text(4, 20),
        AUDIO + text(5, 3),
        AUDIO + text(6, 3),
    ]
    audios = [[a, b], [], [c], [a]]
    with vox.llm(executor=executor) as llm:
        for output, own in zip(vox.generate(llm, prompts, audios), audios, strict=True):
            parts = sum(-(-len(each) // MOST) for each in own)
            assert output.prompt_token_ids.count(PLACEHOLDER) == parts * FRAMES // 8
            vox.check(output, own)
        assert encoded(llm) == 1 + 3 + 1, "equal audio is encoded once"


def test_language_model_only(vox: ImageModel) -> None:
    with vox.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = vox.generate(llm, [AUDIO + text(1, 9)], [[audio(1, 900)]])
        vox.check(output, [audio(1, 900)])
    with vox.llm(limit_mm_per_prompt={"audio": 0}) as llm:
        assert llm._loaded.core.built.encoder is None
        (output,) = vox.generate(llm, [text(1, 9)], [[]])
        vox.check(output, [])
        with pytest.raises(EngineError, match="1 audios; at most 0 are taken"):
            vox.generate(llm, [AUDIO + text(1, 9)], [[audio(1, 900)]])


@pytest.mark.parametrize("family", ["qwen", "vox"])
def test_ranks_and_stages_of_text(family: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(family).check_divided()


def test_audio_that_does_not_fit_is_refused(qwen: ImageModel, vox: ImageModel) -> None:
    def refuse(model: ImageModel, message: str, **media: Any) -> None:
        with model.llm() as llm, pytest.raises(EngineError, match=message) as refused:
            llm.generate([AUDIO], **media)
        assert refused.value.code == "INVALID_ARGUMENT"

    stereo, long = np.zeros((900, 2), np.float32), audio(1, MOST + 1)
    refuse(qwen, r"audio 0: .* 6400 of them \(0.4 s\), got \[6401\]", audios=[[long]])
    refuse(qwen, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
    refuse(vox, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
    refuse(vox, r"audio 0: .*, got \[0\]", audios=[[stereo[:0, 0]]])
    refuse(vox, "audio 0 has samples that are not finite", audios=[[audio(1, 9) * np.nan]])
    refuse(vox, "1 placeholders .token 3. for 2 audios", audios=[[audio(1, 9)] * 2])
    refuse(vox, "takes no images", images=[[np.zeros((3, 8, 8), np.float32)]])
    refuse(vox, "audios of 2 prompts, but 1", audios=[[], []])
