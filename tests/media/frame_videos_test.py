"""Videos whose frames are images of one size, through the engine: the tokens of LLaVA-OneVision
are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from transformers import SiglipVisionConfig

from tests.media.frame_videos import (
    Video,
    check_beside_image,
    check_lengths,
    check_prefixes,
    check_refusals,
    check_resized,
    video,
)
from tests.media.media_model import MediaTestModel, text
from tests.media.tiny_tiled_models import (
    LLAVA_NEXT_PLACEHOLDER,
    LLAVA_NEXT_TILE,
    LLAVA_ONEVISION_VIDEO,
    llava_onevision,
)
from tests.parity.tiny_models import save

IMAGE, VIDEO = LLAVA_NEXT_PLACEHOLDER, [LLAVA_ONEVISION_VIDEO]
SIDE = LLAVA_NEXT_TILE[1]
FRAME_TOKENS = 4  # of 4 x 4 patches
Image = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int) -> Image:
    """Two tiles and the whole image."""
    shape = (3, *LLAVA_NEXT_TILE)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32), (1, SIDE, 2 * SIDE)


FEW, OTHER, MANY, STILL = (
    video(seed, frames, LLAVA_NEXT_TILE) for seed, frames in ((1, 2), (2, 2), (3, 5), (4, 1))
)
PICTURE = image(5)


def video_model(path: Path, **changes: Any) -> MediaTestModel:
    """Of one prompt's videos, all have as many frames."""
    torch.manual_seed(0)
    reference = save(llava_onevision(**changes), path)

    def logits(ids: list[int], media: Sequence[Image | Video]) -> torch.Tensor:
        images, videos = ([m for m in media if len(m) == length] for length in (2, 3))
        inputs: dict[str, torch.Tensor] = {}
        if images:
            inputs["pixel_values"] = torch.tensor(np.stack([m[0] for m in images]))
            inputs["image_sizes"] = torch.tensor([m[1][1:] for m in images])
            inputs["batch_num_images"] = torch.tensor([1] * len(images))
        if videos:
            inputs["pixel_values_videos"] = torch.tensor(np.stack([m[0] for m in videos]))
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **inputs, use_cache=False).logits[0]

    model = MediaTestModel(path, logits)
    model.argument = "videos"
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return video_model(tmp_path_factory.mktemp("llava_onevision"))


VIDEOS = [[FEW, OTHER], [MANY], [STILL], []]


@pytest.mark.parametrize(
    "options",
    [{"executor": "torch"}, {}, {"tensor_parallel_size": 2, "max_num_batched_tokens": 13}],
)
def test_tokens_of_videos_of_several_lengths(
    model: MediaTestModel, options: dict[str, Any]
) -> None:
    check_lengths(model, VIDEO, VIDEOS, 2 + 2 + 5 + 1, **options)


def test_a_row_end_is_behind_the_last_frame(model: MediaTestModel) -> None:
    with model.llm(skip_tokenizer_init=True) as llm:
        for own, frames in ((STILL, 1), (MANY, 5)):
            (output,) = model.generate(llm, [[20, *VIDEO, 21]], [[own]])
            expected = VIDEO * (frames * FRAME_TOKENS + 1)
            assert output.prompt_token_ids == [20, *expected, 21]


def test_an_odd_number_of_patches_in_a_row(tmp_path: Path) -> None:
    """Of which the last one of three tokens has half of a patch more than there is."""
    vision = SiglipVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=20,
        patch_size=4,
        vision_use_head=False,
    )
    model = video_model(tmp_path, vision_config=vision, image_grid_pinpoints=[[20, 20]])
    own = [video(1, 3, (3, 20, 20))]
    with model.llm() as llm:
        (output,) = model.generate(llm, [text(1, 3) + VIDEO + text(2, 5)], [own], logprobs=0)
        assert output.prompt_token_ids.count(VIDEO[0]) == 3 * 9 + 1
        model.check(output, own)


@pytest.mark.parametrize("step", [5, 13])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    check_beside_image(model, (IMAGE, PICTURE), (VIDEO[0], MANY), 1 + 5, step)


def test_prefixes_are_those_of_equal_frames(model: MediaTestModel) -> None:
    cached = check_prefixes(model, VIDEO, MANY)
    assert cached[0] == 0 and 16 <= cached[1] <= 26 < cached[2]


def test_frames_are_resized(model: MediaTestModel) -> None:
    """By the settings of images, which have the size of frames, too."""
    settings = {
        "image_processor_type": "LlavaOnevisionImageProcessorFast",
        "size": {"height": SIDE, "width": SIDE},
        "image_grid_pinpoints": [[SIDE, 2 * SIDE]],
    }
    check_resized(model, VIDEO, SIDE, settings)


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    check_refusals(model, VIDEO, FEW)


def test_a_configuration_without_the_token_takes_no_videos(tmp_path: Path) -> None:
    model = video_model(tmp_path)
    file = tmp_path / "config.json"
    saved = file.read_text()
    lines = [line for line in saved.splitlines() if '"video_token' not in line]
    assert len(lines) == len(saved.splitlines()) - 1
    file.write_text("\n".join(lines))
    with (
        model.llm() as llm,
        pytest.raises(EngineError, match="this model takes no videos"),
    ):
        model.generate(llm, [VIDEO], [[FEW]])
