"""Media of the thinkers of Qwen2.5-Omni and Qwen3-Omni through the engine: their tokens are those
of `transformers`. Audio alone is in audio_test.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.encoder import MediaSizes
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.engine.llm import LLM, Output
from pagemill.engine.outputs import EngineError
from pagemill.models.audio.log_mel import HOP
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.numpy import load_file, save_file

from tests.media.audio_models import audio
from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.media.omni_models import (
    AUDIO,
    AUDIO_ID,
    IMAGE,
    IMAGE_ID,
    MAKERS,
    VIDEO,
    VIDEO_ID,
    WINDOW,
    omni_model,
)
from tests.media.qwen_vl_models import image
from tests.media.video_models import video

SQUARE, WIDE, LARGE = image(1, 6, 6), image(2, 4, 10), image(5, 14, 16)
# A pair of frames is 13 and 2.5 positions long, of which fractions are rounded down.
SLOW, FAST = video(1, 3, 4, 6, rate=2.0), video(2, 4, 4, 10, rate=10.4)


@pytest.fixture(scope="module", name="omni", params=sorted(MAKERS))
def _omni(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    return omni_model(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_images(omni: MediaTestModel, executor: str) -> None:
    prompts = media_prompts(IMAGE)
    images = [[SQUARE, WIDE], [LARGE], []]
    omni.check_all(prompts, images, executor=executor)


@pytest.mark.parametrize("step", [16, 23])
def test_images_and_videos(omni: MediaTestModel, step: int) -> None:
    """In one prompt; text follows all positions of a video, which is longer in time than wide."""
    prompt = text(1, 8) + IMAGE + text(2, 3) + VIDEO + text(3, 9) + VIDEO + text(4, 5)
    with omni.llm(max_num_batched_tokens=step) as llm:
        (output,) = omni.generate(llm, [prompt], [[SQUARE]], videos=[[SLOW, FAST]], logprobs=0)
        assert encoded(llm) == 1 + 3 + 4
    omni.check(output, [SQUARE, SLOW, FAST])


def test_language_model_only(omni: MediaTestModel) -> None:
    with omni.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = llm.generate([VIDEO + text(1, 3)], videos=[[SLOW]], max_tokens=1)
        assert output.prompt_token_ids.count(VIDEO_ID) == 18
    built = build(ModelSource.open(omni.path), BuildOptions(language_only=True))
    assert not built.encoders and "visual." not in built.program_text


def test_ranks_and_stages_of_text(omni: MediaTestModel) -> None:
    omni.check_divided()


def test_whole_checkpoints_are_read(omni: MediaTestModel, tmp_path: Path) -> None:
    """Their thinker is one of several models, under the names of published checkpoints."""
    for file in omni.path.iterdir():
        shutil.copy(file, tmp_path)
    thinker = json.loads((tmp_path / "config.json").read_text())
    (name,) = thinker["architectures"]
    whole = {"architectures": [name.replace("Thinker", "")], "thinker_config": thinker}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    tensors = load_file(tmp_path / "model.safetensors")
    named = {f"thinker.{_published(name)}": value for name, value in tensors.items()}
    assert any(name.startswith("thinker.visual.") for name in named)
    named["talker.codec_head.weight"] = np.ones((3, 2), np.float32)
    named["code2wav.pre_transformer.norm.weight"] = np.ones(3, np.float32)
    save_file(named, tmp_path / "model.safetensors")
    prompt = text(1, 3) + IMAGE + text(2, 4)
    with MediaTestModel(tmp_path, omni.reference).llm() as llm:
        (output,) = omni.generate(llm, [prompt], [[WIDE]], logprobs=0)
    omni.check(output, [WIDE])


def test_sizes_of_whole_checkpoints_are_those_of_tensors(
    omni: MediaTestModel, tmp_path: Path
) -> None:
    shutil.copy(omni.path / "model.safetensors", tmp_path)
    thinker = json.loads((omni.path / "config.json").read_text())
    thinker["audio_config"]["num_mel_bins"] = 2**31 - 1
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": thinker["architectures"], "thinker_config": thinker})
    )
    with pytest.raises(WeightsError, match="num_mel_bins is 2147483647, but the largest dim"):
        build(ModelSource.open(tmp_path), BuildOptions())


def _published(name: str) -> str:
    for part in ("visual.", "audio_tower."):
        name = name.replace(f"model.{part}", part, 1)
    return name.replace("model.language_model.", "model.", 1)


PART = 2 * WINDOW * HOP
SHORT, LONG = audio(1, 7 * HOP), audio(2, 2 * PART + 5 * HOP)
MIXED = [SQUARE, WIDE, SLOW, SHORT, LONG]
PROMPT = (
    text(1, 4) + AUDIO + text(2, 3) + IMAGE + VIDEO + text(3, 2) + AUDIO + IMAGE + text(4, 5)
)  # media of all kinds, some beside each other


def family_of(model: MediaTestModel) -> str:
    (architecture,) = json.loads((model.path / "config.json").read_text())["architectures"]
    return "qwen3_omni" if "Qwen3" in architecture else "qwen2_5_omni"


def answer_mixed(model: MediaTestModel, llm: LLM, **fields: Any) -> Output:
    (output,) = model.generate(
        llm, [PROMPT], [[SQUARE, WIDE]], videos=[[SLOW]], audios=[[SHORT, LONG]], **fields
    )
    return output


@pytest.mark.parametrize(
    "options",
    [{}, {"executor": "torch"}, {"max_num_batched_tokens": 16}, {"tensor_parallel_size": 2}],
    ids=lambda options: "-".join(options),
)
def test_images_videos_and_audio(omni: MediaTestModel, options: dict[str, Any]) -> None:
    """In one prompt, beside prompts of one kind, whose items are encoded once."""
    with omni.llm(**options) as llm:
        omni.check(answer_mixed(omni, llm, logprobs=0), MIXED)
        # Frames of the video are items, and so are parts of the audio.
        assert encoded(llm) == 2 + 3 + {"qwen2_5_omni": 1 + 3, "qwen3_omni": 2}[family_of(omni)]
        (seen,) = omni.generate(llm, [IMAGE + text(7, 3)], [[WIDE]])
        omni.check(seen, [WIDE])
        (heard,) = omni.generate(llm, [AUDIO + text(8, 3)], [[]], audios=[[LONG]])
        omni.check(heard, [LONG])
        (read,) = omni.generate(llm, [text(9, 20)], [[]])
        omni.check(read, [])


def test_requests_with_different_media_share_steps(omni: MediaTestModel) -> None:
    prompts = [IMAGE + text(1, 3), AUDIO + text(2, 9), text(3, 7), AUDIO + IMAGE + text(4, 2)]
    images, sounds = [[SQUARE], [], [], [LARGE]], [[], [LONG], [], [SHORT]]
    with omni.llm() as llm:
        outputs = omni.generate(llm, prompts, images, audios=sounds)
    for output, seen, heard in zip(outputs, images, sounds, strict=True):
        omni.check(output, [*seen, *heard])


@pytest.mark.parametrize(
    ("refused", "tower", "other"),
    [
        ({"audio": 0}, "visual.", "audio_tower."),
        ({"image": 0, "video": 0}, "audio_tower.", "visual."),
    ],
)
def test_an_encoder_whose_media_are_refused_is_not_loaded(
    omni: MediaTestModel, refused: dict[str, int], tower: str, other: str
) -> None:
    source = ModelSource.open(omni.path)
    built = build(source, BuildOptions(refused_media=frozenset(refused)))
    (encoder,) = built.encoders
    assert tower in encoder.program_text and other not in encoder.program_text
    with omni.llm(limit_mm_per_prompt=refused) as llm:
        for _ in range(2):
            if "audio" in refused:
                (output,) = omni.generate(llm, [IMAGE + text(1, 5)], [[WIDE]], logprobs=0)
                omni.check(output, [WIDE])
            else:
                (output,) = omni.generate(
                    llm, [AUDIO + text(1, 5)], [[]], audios=[[LONG]], logprobs=0
                )
                omni.check(output, [LONG])
            llm.update_weights(omni.path)
        with pytest.raises(EngineError, match="at most 0 are taken"):
            answer_mixed(omni, llm)


def test_weights_of_both_encoders_are_replaced(omni: MediaTestModel, tmp_path: Path) -> None:
    other = omni_model(family_of(omni), tmp_path, seed=1)
    with omni.llm() as llm:
        omni.check(answer_mixed(omni, llm), MIXED)
        llm.update_weights(tmp_path)
        other.check(answer_mixed(other, llm, logprobs=0), MIXED)


def test_placeholders_are_counted_by_kind(omni: MediaTestModel) -> None:
    with omni.llm() as llm:
        for kind, placeholder in (("images", IMAGE_ID), ("videos", VIDEO_ID), ("audios", AUDIO_ID)):
            media = {"images": SQUARE, "videos": SLOW, "audios": SHORT}[kind]
            with pytest.raises(EngineError, match=rf"0 placeholders .token {placeholder}"):
                llm.generate([text(1, 3)], **{kind: [[media]]})


def test_memory_is_that_of_both_encoders(omni: MediaTestModel) -> None:
    """Their programs are counted each, embeddings that are kept once."""
    source = ModelSource.open(omni.path)
    config = build_config(EngineConfig, {"max_num_batched_tokens": 128, "max_num_seqs": 4})

    def planned(*refused: str) -> MediaSizes:
        built = build(source, BuildOptions(refused_media=frozenset(refused)))
        return MediaSizes.of(built, ExecutorSizes.of(built, config, "f32", None), config)

    whole, seen, heard = planned(), planned("audio"), planned("image", "video")
    assert [len(sizes.memory().plans) for sizes in (whole, seen, heard)] == [2, 1, 1]
    assert whole.step_tokens == seen.step_tokens == heard.step_tokens == 128
    memories = [sizes.memory() for sizes in (whole, seen, heard)]
    kept = memories[0].kept_bytes
    assert memories[0].total_bytes == sum(m.total_bytes for m in memories[1:]) - kept


def test_images_fit_their_own_encoder(omni: MediaTestModel) -> None:
    """Whatever audio needs, of which a window may have more tokens than a step."""
    config = build_config(EngineConfig, {"max_num_batched_tokens": 16, "max_num_seqs": 4})
    built = build(ModelSource.open(omni.path), BuildOptions())
    sizes = MediaSizes.of(built, ExecutorSizes.of(built, config, "f32", None), config)
    assert sizes.max_item_tokens == 16 <= sizes.step_tokens
