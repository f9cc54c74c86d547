"""Videos of LLaVA-NeXT-Video through the engine: tokens are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.llava_next_video import LlavaNextVideoModel
from pagemill.weights.source import ModelSource

from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.tiny_tiled_models import (
    LLAVA_NEXT_PLACEHOLDER,
    LLAVA_NEXT_TILE,
    LLAVA_ONEVISION_VIDEO,
    llava_next_video,
)
from tests.parity.tiny_models import save

IMAGE, VIDEO = [LLAVA_NEXT_PLACEHOLDER], [LLAVA_ONEVISION_VIDEO]
FRAME_TOKENS = 4  # of 4 x 4 patches
Image = tuple[np.ndarray, tuple[int, int, int]]
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def video(seed: int, frames: int) -> Video:
    pixels = np.random.default_rng(seed).normal(size=(frames, *LLAVA_NEXT_TILE))
    times = FrameTimes(tuple(map(float, range(frames))), 1.0)
    return pixels.astype(np.float32), (frames, 1, 1), times


FEW, OTHER, MANY, STILL = video(1, 2), video(2, 2), video(3, 5), video(4, 1)
# Two tiles and the whole image.
PICTURE = (
    np.random.default_rng(5).normal(size=(3, *LLAVA_NEXT_TILE)).astype(np.float32),
    (1, LLAVA_NEXT_TILE[1], 2 * LLAVA_NEXT_TILE[1]),
)


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    """Of one prompt's videos, all have as many frames."""
    path = tmp_path_factory.mktemp("llava_next_video")
    torch.manual_seed(0)
    reference = save(llava_next_video(), path)

    def logits(ids: list[int], media: Sequence[Image | Video]) -> torch.Tensor:
        images, videos = ([m for m in media if len(m) == length] for length in (2, 3))
        inputs: dict[str, torch.Tensor] = {}
        if images:
            inputs["pixel_values"] = torch.tensor(np.stack([m[0] for m in images]))
            inputs["image_sizes"] = torch.tensor([m[1][1:] for m in images])
        if videos:
            inputs["pixel_values_videos"] = torch.tensor(np.stack([m[0] for m in videos]))
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **inputs, use_cache=False).logits[0]

    model = MediaTestModel(path, logits)
    model.argument = "videos"
    return model


PROMPTS = [
    text(1, 3) + VIDEO + text(2, 5) + VIDEO + text(3, 2),
    VIDEO + text(4, 4),
    text(5, 4) + VIDEO,
    text(6, 30),
]
VIDEOS = [[FEW, OTHER], [MANY], [STILL], []]


@pytest.mark.parametrize("options", [{"executor": "torch"}, {}, {"tensor_parallel_size": 2}])
def test_tokens_of_videos_of_several_lengths(
    model: MediaTestModel, options: dict[str, Any]
) -> None:
    with model.llm(**options) as llm:
        outputs = model.generate(llm, PROMPTS, VIDEOS, logprobs=0)
        for output, own, frames in zip(outputs, VIDEOS, (4, 5, 1, 0), strict=True):
            assert output.prompt_token_ids.count(VIDEO[0]) == frames * FRAME_TOKENS
            model.check(output, own)


@pytest.mark.parametrize("step", [5, 13, 64])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = text(1, 8) + IMAGE + text(2, 3) + VIDEO + text(3, 20)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[MANY]], images=[[PICTURE]], logprobs=0)
        assert encoded(llm) == 1 + 5, "a frame is an item"
    model.check(output, [PICTURE, MANY])


def test_one_kind_of_media_alone(model: MediaTestModel) -> None:
    with model.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = model.generate(llm, [VIDEO + text(1, 4)], [[FEW]])
        model.check(output, [FEW])
    with model.llm(limit_mm_per_prompt={"video": 0}) as llm:
        (output,) = model.generate(llm, [IMAGE + text(1, 4)], [[]], images=[[PICTURE]])
        model.check(output, [PICTURE])


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    pixels, _, times = FEW
    with model.llm() as llm, pytest.raises(EngineError, match=r"and \(1, 2, 1\)") as refused:
        model.generate(llm, [VIDEO], [[(pixels, (1, 2, 1), times)]])
    assert refused.value.code == "INVALID_ARGUMENT"


def test_other_pools_are_refused(model: MediaTestModel) -> None:
    config = ModelSource.open(model.path).config
    LlavaNextVideoModel.from_config(config)
    for key, value in (("spatial_pool_mode", "max"), ("spatial_pool_stride", 4)):
        with pytest.raises(ModelConfigError, match=f"{key} is {value!r}; known"):
            LlavaNextVideoModel.from_config({**config, key: value})
