"""Audio through the engine: the tokens of Qwen2-Audio, Voxtral, GLM-ASR and Qwen2.5-Omni are those
of `transformers`, with the features of its extractor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.models.log_mel import HOP, log_mel, padded
from safetensors.numpy import load_file, save_file
from transformers import WhisperFeatureExtractor

from tests.media.audio_models import (
    FRAMES,
    MOST,
    OMNI_WINDOW,
    PLACEHOLDER,
    AudioModel,
    audio,
    glm_asr,
    qwen2_5_omni,
    qwen2_audio,
    voxtral,
)
from tests.media.media_model import MediaTestModel, encoded, text

AUDIO = [PLACEHOLDER]


@pytest.fixture(scope="module", name="qwen")
def _qwen(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return qwen2_audio(tmp_path_factory.mktemp("qwen2_audio"))


@pytest.fixture(scope="module", name="vox")
def _vox(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return voxtral(tmp_path_factory.mktemp("voxtral"))


@pytest.fixture(scope="module", name="glm")
def _glm(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return glm_asr(tmp_path_factory.mktemp("glm_asr"))


@pytest.fixture(scope="module", name="omni")
def _omni(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return qwen2_5_omni(tmp_path_factory.mktemp("qwen2_5_omni"))


def test_log_mel_is_that_of_the_extractor() -> None:
    samples = audio(1, 70_000)
    for bins in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=bins)
        found = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]
        expected = log_mel(padded(samples, 480_000), bins)
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_qwen2_audio(qwen: MediaTestModel, executor: str) -> None:
    """Also audio of an odd number of the encoder's vectors, of which the last one makes no pair."""
    lengths = [2 * HOP + 1, 3 * HOP, 7 * HOP, 7 * HOP + 1, 9 * HOP - 1, 10 * HOP, 25 * HOP, MOST]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, samples), audio(2, MOST)] for samples in lengths]
    with qwen.llm(executor=executor) as llm:
        outputs = qwen.generate(llm, [prompt] * len(lengths), audios, logprobs=0)
        for output, own in zip(outputs, audios, strict=True):
            frames = -(-len(own[0]) // HOP)
            tokens = ((frames - 1) // 2 + 1) // 2
            assert output.prompt_token_ids.count(PLACEHOLDER) == tokens + FRAMES // 4
            qwen.check(output, own)


def test_audio_may_be_longer_than_a_step(qwen: MediaTestModel) -> None:
    """Its tokens are those of the longest audio, also where a step has more or fewer."""
    prompt, longest = AUDIO + text(1, 5), audio(1, MOST)
    for step in (4, 64):
        with qwen.llm(max_num_batched_tokens=step) as llm:
            assert llm._loaded.core.max_item_tokens == FRAMES // 4
            (output,) = qwen.generate(llm, [prompt], [[longest]])
            qwen.check(output, [longest])


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_voxtral(vox: MediaTestModel, executor: str) -> None:
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


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_glm_asr(glm: MediaTestModel, executor: str) -> None:
    """Silence behind audio makes no tokens, nor do a few frames of a last part."""
    lengths = [6 * HOP + 1, 8 * HOP, 14 * HOP, 15 * HOP, MOST, MOST + 6 * HOP, 2 * MOST + 1500]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, samples), audio(2, 3000)] for samples in lengths]
    with glm.llm(executor=executor) as llm:
        for output, own in zip(
            glm.generate(llm, [prompt] * len(lengths), audios, logprobs=0), audios, strict=True
        ):
            frames = (-(-len(each) // HOP) for each in own)
            tokens = sum((each + 1) // 2 // 4 for each in frames)
            assert output.prompt_token_ids.count(PLACEHOLDER) == tokens
            glm.check(output, own)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_qwen2_5_omni(omni: MediaTestModel, executor: str) -> None:
    """Parts of an even and an odd number of frames; of a last single vector no pair is made."""
    part = 2 * OMNI_WINDOW * HOP
    lengths = [2 * HOP + 1, 5 * HOP, part, part + 2 * HOP, part + 7 * HOP, 3 * part + 9 * HOP + 1]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, samples), audio(2, 2 * part)] for samples in lengths]
    with omni.llm(executor=executor) as llm:
        outputs = omni.generate(llm, [prompt] * len(lengths), audios, logprobs=0)
        for output, own in zip(outputs, audios, strict=True):
            frames = (-(-len(each) // HOP) for each in own)
            tokens = sum((each + 1) // 2 // 2 for each in frames)
            assert output.prompt_token_ids.count(PLACEHOLDER) == tokens
            omni.check(output, own)


def test_language_model_only(vox: MediaTestModel) -> None:
    with vox.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = vox.generate(llm, [AUDIO + text(1, 9)], [[audio(1, 900)]])
        vox.check(output, [audio(1, 900)])
    vox.check_language_model_only("audio_tower.", audio(1, 900))


def test_whole_omni_checkpoints_are_read(omni: MediaTestModel, tmp_path: Path) -> None:
    """Their thinker is one of several models, which has its prefix in front of names."""
    for file in omni.path.iterdir():
        shutil.copy(file, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    whole = {"architectures": ["Qwen2_5OmniModel"], "thinker_config": config}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    tensors = load_file(tmp_path / "model.safetensors")
    named = {f"thinker.{name}": value for name, value in tensors.items()}
    named["talker.codec_head.weight"] = np.ones((3, 2), np.float32)
    save_file(named, tmp_path / "model.safetensors")
    prompt, sound = text(1, 3) + AUDIO + text(2, 4), audio(3, 4000)
    with AudioModel(tmp_path, omni.reference).llm() as llm:
        (output,) = omni.generate(llm, [prompt], [[sound]])
        omni.check(output, [sound])
    omni.check_language_model_only("audio_tower.", sound)


@pytest.mark.parametrize("family", ["qwen", "vox", "glm", "omni"])
def test_ranks_and_stages_of_text(family: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(family).check_divided()


def test_audio_that_does_not_fit_is_refused(qwen: MediaTestModel, vox: MediaTestModel) -> None:
    def refuse(llm: LLM, message: str, **media: Any) -> None:
        with pytest.raises(EngineError, match=message) as refused:
            llm.generate([AUDIO], **media)
        assert refused.value.code == "INVALID_ARGUMENT"

    stereo, long = np.zeros((900, 2), np.float32), audio(1, MOST + 1)
    with qwen.llm() as llm:
        refuse(llm, r"audio 0: .* 6400 of them \(0.4 s\), got \[6401\]", audios=[[long]])
        refuse(llm, r"audio 0: .* from 321 to .*, got \[320\]", audios=[[long[: 2 * HOP]]])
        refuse(llm, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
    with vox.llm() as llm:
        refuse(llm, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
        refuse(llm, r"audio 0: .*, got \[0\]", audios=[[stereo[:0, 0]]])
        refuse(llm, "audio 0 has samples that are not finite", audios=[[audio(1, 9) * np.nan]])
        refuse(llm, "1 placeholders .token 3. for 2 audios", audios=[[audio(1, 9)] * 2])
        refuse(llm, "takes no images", images=[[np.zeros((3, 8, 8), np.float32)]])
        refuse(llm, "audios of 2 prompts, but 1", audios=[[], []])
