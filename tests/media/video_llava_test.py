"""Images and videos of Video-LLaVA through the engine: tokens are those of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    VideoLlavaConfig,
    VideoLlavaForConditionalGeneration,
)

from tests.media.frame_videos import (
    Video,
    check_beside_image,
    check_lengths,
    check_one_kind,
    check_refusals,
    video,
)
from tests.media.media_model import MediaTestModel, text
from tests.parity.tiny_models import TEXT_SIZES, save

IMAGE, VIDEO = 3, 4
TILE = (3, 16, 16)
IMAGE_TOKENS = 16  # of 4 x 4 patches; a frame has one more


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    """Of one prompt's videos, all have as many frames."""
    path = tmp_path_factory.mktemp("video_llava")
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=TILE[1],
        patch_size=4,
    )
    config = VideoLlavaConfig(
        vision_config=vision,
        text_config=LlamaConfig(**TEXT_SIZES),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
    )
    config._attn_implementation = "eager"
    reference = save(VideoLlavaForConditionalGeneration(config), path)

    def logits(ids: list[int], media: Sequence[np.ndarray | Video]) -> torch.Tensor:
        inputs: dict[str, torch.Tensor] = {}
        if images := [m for m in media if isinstance(m, np.ndarray)]:
            inputs["pixel_values"] = torch.tensor(np.stack(images))
        if videos := [m[0] for m in media if isinstance(m, tuple)]:
            inputs["pixel_values_videos"] = torch.tensor(np.stack(videos))
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **inputs, use_cache=False).logits[0]

    model = MediaTestModel(path, logits)
    model.argument = "videos"
    return model


FEW, OTHER, MANY, STILL = (
    video(seed, frames, TILE) for seed, frames in ((1, 2), (2, 2), (3, 3), (4, 1))
)
PICTURE = np.random.default_rng(5).normal(size=TILE).astype(np.float32)
VIDEOS = [[FEW, OTHER], [MANY], [STILL], []]


@pytest.mark.parametrize("options", [{"executor": "torch"}, {}, {"tensor_parallel_size": 2}])
def test_tokens_of_videos_of_several_lengths(
    model: MediaTestModel, options: dict[str, Any]
) -> None:
    check_lengths(model, [VIDEO], VIDEOS, 2 + 2 + 3 + 1, **options)


@pytest.mark.parametrize("step", [18, 23])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    check_beside_image(model, (IMAGE, PICTURE), (VIDEO, MANY), 1 + 3, step)


def test_a_frame_keeps_its_class_token(model: MediaTestModel) -> None:
    with model.llm() as llm:
        (output,) = model.generate(llm, [[IMAGE, 20, VIDEO, 21]], [[FEW]], images=[[PICTURE]])
    expected = [*[IMAGE] * IMAGE_TOKENS, 20, *[VIDEO] * 2 * (IMAGE_TOKENS + 1), 21]
    assert output.prompt_token_ids == expected


def test_one_kind_of_media_alone(model: MediaTestModel) -> None:
    check_one_kind(model, (IMAGE, PICTURE), (VIDEO, FEW))


def test_files_are_cut_as_the_model_wants(model: MediaTestModel) -> None:
    """Images and frames alike: the shorter side becomes 16, and the middle is cut out."""
    settings = {
        "image_processor_type": "VideoLlavaImageProcessor",
        "size": {"shortest_edge": TILE[1]},
        "crop_size": {"height": TILE[1], "width": TILE[2]},
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    colors = np.random.default_rng(6).integers(0, 256, (2, 16, 24, 3), np.uint8)
    middle = (colors[:, :, 4:20].transpose(0, 3, 1, 2) / np.float32(255) - 0.5) / np.float32(0.25)
    prepared = middle.astype(np.float32), (2, 1, 1), FEW[2]
    with model.llm() as llm:
        (output,) = model.generate(llm, [[VIDEO, *text(1, 3)]], [[colors]], logprobs=0)
    model.check(output, [prepared])


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    check_refusals(model, [VIDEO], FEW)


def test_text_alone_ranks_and_stages(model: MediaTestModel) -> None:
    model.check_divided()
