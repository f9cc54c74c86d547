"""Audio through the engine: the tokens of Qwen2-Audio, Audio Flamingo 3, Voxtral, GLM-ASR,
Qwen3-ASR and Qwen's Omni models are those of `transformers`, with the features of its
extractors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.encoder import EncoderSizes
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.models.audio.log_mel import HOP, log_mel, padded
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.numpy import load_file, save_file
from transformers import WhisperFeatureExtractor

from tests.media.audio_models import (
    CHUNK,
    FRAMES,
    MOST,
    OMNI_WINDOW,
    PLACEHOLDER,
    AudioModel,
    audio,
    audio_flamingo3,
    glm_asr,
    qwen2_5_omni,
    qwen2_audio,
    qwen3_asr,
    qwen3_omni,
    voxtral,
)
from tests.media.media_model import MediaTestModel, encoded, text

AUDIO = [PLACEHOLDER]


@pytest.fixture(scope="module", name="qwen")
def _qwen(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return qwen2_audio(tmp_path_factory.mktemp("qwen2_audio"))


@pytest.fixture(scope="module", name="flamingo")
def _flamingo(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return audio_flamingo3(tmp_path_factory.mktemp("audio_flamingo3"))


@pytest.fixture(scope="module", name="vox")
def _vox(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return voxtral(tmp_path_factory.mktemp("voxtral"))


@pytest.fixture(scope="module", name="glm")
def _glm(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return glm_asr(tmp_path_factory.mktemp("glm_asr"))


@pytest.fixture(scope="module", name="omni")
def _omni(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return qwen2_5_omni(tmp_path_factory.mktemp("qwen2_5_omni"))


@pytest.fixture(scope="module", name="omni3")
def _omni3(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return qwen3_omni(tmp_path_factory.mktemp("qwen3_omni"))


@pytest.fixture(scope="module", name="asr")
def _asr(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return qwen3_asr(tmp_path_factory.mktemp("qwen3_asr"))


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
def test_audio_flamingo3(flamingo: MediaTestModel, executor: str) -> None:
    """Also parts of an odd number of the encoder's vectors, and a last one that makes no token."""
    rests = [3 * HOP, 7 * HOP, 9 * HOP - 1, MOST, MOST + 2 * HOP, MOST + 7 * HOP, 2 * MOST + 900]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, samples), audio(2, 3000)] for samples in rests]
    with flamingo.llm(executor=executor) as llm:
        outputs = flamingo.generate(llm, [prompt] * len(rests), audios, logprobs=0)
    for output, own in zip(outputs, audios, strict=True):
        frames = (-(-len(each) // HOP) for each in own)
        tokens = sum((each + 1) // 2 // 2 for each in frames)
        assert output.prompt_token_ids.count(PLACEHOLDER) == tokens
        flamingo.check(output, own)


def test_a_projector_without_biases(tmp_path: Path) -> None:
    model, own = audio_flamingo3(tmp_path, projector_bias=False), [audio(1, 2 * MOST)]
    with model.llm() as llm:
        (output,) = model.generate(llm, [AUDIO + text(1, 5)], [own], logprobs=0)
        model.check(output, own)


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


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_qwen3_omni(omni3: MediaTestModel, executor: str) -> None:
    """Audio shorter than a chunk, of every rest of eight frames; of whole chunks and windows, and
    with a rest in a window of its own."""
    frames = [*range(2, 10), 57, 99, CHUNK, CHUNK + 3, 2 * CHUNK, 2 * CHUNK + 41, 5 * CHUNK + 1]
    prompt = text(1, 3) + AUDIO + text(2, 5) + AUDIO + text(3, 4)
    audios = [[audio(1, each * HOP + 7), audio(2, 3000)] for each in frames]
    with omni3.llm(executor=executor) as llm:
        outputs = omni3.generate(llm, [prompt] * len(frames), audios, logprobs=0)
    for output, own, count in zip(outputs, audios, frames, strict=True):
        assert output.prompt_token_ids.count(PLACEHOLDER) == _vectors(count) + _vectors(18)
        omni3.check(output, own)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_qwen3_asr(asr: MediaTestModel, executor: str) -> None:
    """Audio shorter than half a second and than a chunk; and in several windows."""
    frames = [0, 20, 50, 57, 99, CHUNK, CHUNK + 3, 2 * CHUNK + 41, 5 * CHUNK + 1]
    audios = [[audio(1, each * HOP + 7)] for each in frames]
    with asr.llm(executor=executor) as llm:
        prompt = text(1, 3) + AUDIO + text(2, 5)
        outputs = asr.generate(llm, [prompt] * len(frames), audios, logprobs=0)
    for output, own, count in zip(outputs, audios, frames, strict=True):
        assert output.prompt_token_ids.count(PLACEHOLDER) == _vectors(max(50, count))
        asr.check(output, own)


def test_windows_are_encoded_in_twos(asr: MediaTestModel) -> None:
    """Whatever a step of the model computes: values of a convolution are large."""
    built = build(ModelSource.open(asr.path), BuildOptions())
    config = build_config(EngineConfig, {"max_num_batched_tokens": 8192})
    (encoder,) = built.encoders
    sizes = EncoderSizes.of(encoder, ExecutorSizes.of(built, config, "f32", None), config)
    assert sizes.encoder_tokens == 2 * 2 * 13
    assert sizes.max_item_tokens == 2 * 13 and sizes.step_tokens == 8192


def _vectors(frames: int) -> int:
    """Those that Qwen3's encoders make of audio."""
    return frames // CHUNK * 13 + -(-(frames % CHUNK) // 8)


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


def test_the_first_checkpoints_of_qwen3_asr_are_read(asr: MediaTestModel, tmp_path: Path) -> None:
    """They have a thinker, other names, and state positions of three dimensions."""
    config = json.loads((asr.path / "config.json").read_text())
    rope = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}
    theta = config["text_config"]["rope_parameters"]["rope_theta"]
    text_config = config["text_config"] | {"model_type": "qwen3_asr_text", "rope_theta": theta}
    del text_config["rope_parameters"]
    thinker = config | {"text_config": text_config | {"rope_scaling": rope}}
    whole = {"architectures": config["architectures"], "thinker_config": thinker}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    tensors = load_file(asr.path / "model.safetensors")
    save_file(
        {_first_name(name): value for name, value in tensors.items()},
        tmp_path / "model.safetensors",
    )
    for file in asr.path.glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    prompt, sound = text(1, 3) + AUDIO + text(2, 4), audio(3, 9000)
    with AudioModel(tmp_path, asr.reference).llm() as llm:
        (output,) = asr.generate(llm, [prompt], [[sound]])
        asr.check(output, [sound])


def _first_name(name: str) -> str:
    for newer, first in (
        ("model.language_model.", "model."),
        ("model.multi_modal_projector.linear_", "audio_tower.proj"),
        ("model.audio_tower.", "audio_tower."),
    ):
        name = name.replace(newer, first, 1)
    return f"thinker.{name}"


@pytest.mark.parametrize("family", ["qwen", "flamingo", "vox", "glm", "omni", "omni3", "asr"])
def test_ranks_and_stages_of_text(family: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(family).check_divided()


def test_audio_that_does_not_fit_is_refused(
    qwen: MediaTestModel, flamingo: MediaTestModel, vox: MediaTestModel
) -> None:
    def refuse(llm: LLM, message: str, **media: Any) -> None:
        with pytest.raises(EngineError, match=message) as refused:
            llm.generate([AUDIO], **media)
        assert refused.value.code == "INVALID_ARGUMENT"

    stereo, long = np.zeros((900, 2), np.float32), audio(1, MOST + 1)
    with qwen.llm() as llm:
        refuse(llm, r"audio 0: .* 6400 of them \(0.4 s\), got \[6401\]", audios=[[long]])
        refuse(llm, r"audio 0: .* from 321 to .*, got \[320\]", audios=[[long[: 2 * HOP]]])
        refuse(llm, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
    with flamingo.llm() as llm:
        refuse(llm, r"audio 0: .* at least 321 .*, got \[320\]", audios=[[long[: 2 * HOP]]])
        refuse(llm, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
    with vox.llm() as llm:
        refuse(llm, r"audio 0: .*, got \[900, 2\]", audios=[[stereo]])
        refuse(llm, r"audio 0: .*, got \[0\]", audios=[[stereo[:0, 0]]])
        refuse(llm, "audio 0 has samples that are not finite", audios=[[audio(1, 9) * np.nan]])
        refuse(llm, "1 placeholders .token 3. for 2 audios", audios=[[audio(1, 9)] * 2])
        refuse(llm, "takes no images", images=[[np.zeros((3, 8, 8), np.float32)]])
        refuse(llm, "audios of 2 prompts, but 1", audios=[[], []])
