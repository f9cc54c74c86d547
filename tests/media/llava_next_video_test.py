"""Videos of LLaVA-NeXT-Video through the engine: tokens are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.llava_next_video import LlavaNextVideoModel
from pagemill.weights.source import ModelSource

from tests.media.frame_videos import (
    Video,
    check_beside_image,
    check_lengths,
    check_one_kind,
    check_refusals,
    video,
)
from tests.media.media_model import MediaTestModel
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


FEW, OTHER, MANY, STILL = (
    video(seed, frames, LLAVA_NEXT_TILE) for seed, frames in ((1, 2), (2, 2), (3, 5), (4, 1))
)
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


VIDEOS = [[FEW, OTHER], [MANY], [STILL], []]


@pytest.mark.parametrize("options", [{"executor": "torch"}, {}, {"tensor_parallel_size": 2}])
def test_tokens_of_videos_of_several_lengths(
    model: MediaTestModel, options: dict[str, Any]
) -> None:
    check_lengths(model, VIDEO, VIDEOS, 2 + 2 + 5 + 1, **options)


def test_tokens_of_frames(model: MediaTestModel) -> None:
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *VIDEO, 21]], [[FEW]])
        assert output.prompt_token_ids == [20, *VIDEO * 2 * FRAME_TOKENS, 21]


@pytest.mark.parametrize("step", [5, 13, 64])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    check_beside_image(model, (IMAGE[0], PICTURE), (VIDEO[0], MANY), 1 + 5, step)


def test_one_kind_of_media_alone(model: MediaTestModel) -> None:
    check_one_kind(model, (IMAGE[0], PICTURE), (VIDEO[0], FEW))


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    check_refusals(model, VIDEO, FEW)


def test_other_pools_are_refused(model: MediaTestModel) -> None:
    config = ModelSource.open(model.path).config
    LlavaNextVideoModel.from_config(config)
    for key, value in (("spatial_pool_mode", "max"), ("spatial_pool_stride", 4)):
        with pytest.raises(ModelConfigError, match=f"{key} is {value!r}; known"):
            LlavaNextVideoModel.from_config({**config, key: value})
