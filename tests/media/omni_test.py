"""Images and videos of the thinkers of Qwen2.5-Omni and Qwen3-Omni through the engine: their tokens
are those of `transformers`. Audio is in audio_test.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pagemill.models.base import ModelConfigError
from pagemill.models.qwen2_5_omni import Qwen25OmniModel
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.numpy import load_file, save_file

from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.omni_models import IMAGE, MAKERS, VIDEO, VIDEO_ID, omni_model
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
    prompts = [
        text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
        IMAGE + text(4, 4),
        text(5, 30),
    ]
    images = [[SQUARE, WIDE], [LARGE], []]
    with omni.llm(executor=executor) as llm:
        outputs = omni.generate(llm, prompts, images, logprobs=0)
    for output, own in zip(outputs, images, strict=True):
        omni.check(output, own)


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
    assert built.encoder is None and "visual." not in built.program_text


def test_ranks_and_stages_of_text(omni: MediaTestModel) -> None:
    omni.check_divided()


def test_whole_checkpoints_are_read(omni: MediaTestModel, tmp_path: Path) -> None:
    """Their thinker is one of several models, under the names of published checkpoints."""
    for file in omni.path.iterdir():
        shutil.copy(file, tmp_path)
    thinker = json.loads((tmp_path / "config.json").read_text())
    (name,) = thinker["architectures"]
    whole = {
        "architectures": [name.replace("Thinker", "")],
        "thinker_config": thinker,
        "encoder": thinker.get("encoder"),
    }
    written = {key: value for key, value in whole.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(written))
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


def _published(name: str) -> str:
    for part in ("visual.", "audio_tower."):
        name = name.replace(f"model.{part}", part, 1)
    return name.replace("model.language_model.", "model.", 1)


def test_the_encoder_is_one_of_two(tmp_path: Path) -> None:
    omni_model("qwen2_5_omni", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for encoder, kinds in (("audio", {"audio"}), ("images", {"image", "video"})):
        media = Qwen25OmniModel.from_config(config | {"encoder": encoder}).traits.media
        assert media is not None and media.placeholders.keys() == kinds
    with pytest.raises(ModelConfigError, match='\'both\'; it must be "audio" or "images"'):
        Qwen25OmniModel.from_config(config | {"encoder": "both"})
