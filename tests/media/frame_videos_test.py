"""Videos whose frames are images of one size, through the engine: the tokens of LLaVA-OneVision
are those of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes
from transformers import SiglipVisionConfig

from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.tiny_tiled_models import (
    LLAVA_NEXT_PLACEHOLDER,
    LLAVA_NEXT_TILE,
    LLAVA_ONEVISION_VIDEO,
    llava_onevision,
)
from tests.parity.tiny_models import save

IMAGE, VIDEO = [LLAVA_NEXT_PLACEHOLDER], [LLAVA_ONEVISION_VIDEO]
SIDE = LLAVA_NEXT_TILE[1]
FRAME_TOKENS = 4  # of 4 x 4 patches
Image = tuple[np.ndarray, tuple[int, int, int]]
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def video(seed: int, frames: int, side: int = SIDE) -> Video:
    pixels = np.random.default_rng(seed).normal(size=(frames, 3, side, side))
    times = FrameTimes(tuple(map(float, range(frames))), 1.0)
    return pixels.astype(np.float32), (frames, 1, 1), times


def image(seed: int) -> Image:
    """Two tiles and the whole image."""
    shape = (3, *LLAVA_NEXT_TILE)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32), (1, SIDE, 2 * SIDE)


FEW, OTHER, MANY, STILL = video(1, 2), video(2, 2), video(3, 5), video(4, 1)
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


PROMPTS = [
    text(1, 3) + VIDEO + text(2, 5) + VIDEO + text(3, 2),
    VIDEO + text(4, 4),
    text(5, 4) + VIDEO,
    text(6, 30),
]
VIDEOS = [[FEW, OTHER], [MANY], [STILL], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos_of_several_lengths(model: MediaTestModel, executor: str) -> None:
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, PROMPTS, VIDEOS, logprobs=0)
        for output, own in zip(outputs, VIDEOS, strict=True):
            model.check(output, own)
        assert encoded(llm) == 2 + 2 + 5 + 1, "a frame is an item"


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
    own = [video(1, 3, side=20)]
    with model.llm() as llm:
        (output,) = model.generate(llm, [text(1, 3) + VIDEO + text(2, 5)], [own], logprobs=0)
        assert output.prompt_token_ids.count(VIDEO[0]) == 3 * 9 + 1
        model.check(output, own)


@pytest.mark.parametrize("step", [5, 13])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = text(1, 8) + IMAGE + text(2, 3) + VIDEO + text(3, 20)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[MANY]], images=[[PICTURE]], logprobs=0)
        assert encoded(llm) == 1 + 5
    model.check(output, [PICTURE, MANY])


def test_prefixes_are_those_of_equal_frames(model: MediaTestModel) -> None:
    pixels, grid, times = MANY
    changed = pixels.copy()
    changed[-1] += 1
    prompt = text(1, 10) + VIDEO + text(2, 40)
    with model.llm() as llm:
        cached: list[int] = []
        for values in (pixels, changed, pixels):
            (output,) = model.generate(llm, [prompt], [[(values, grid, times)]])
            model.check(output, [(values, grid, times)])
            cached.append(output.num_cached_tokens)
        assert encoded(llm) == 6, "the frames of both are equal but the last"
    assert cached[0] == 0 and 16 <= cached[1] <= 26 < cached[2]


def test_frames_are_resized(model: MediaTestModel) -> None:
    """By the settings of images, which have the size of frames, too."""
    settings = {
        "image_processor_type": "LlavaOnevisionImageProcessorFast",
        "size": {"height": SIDE, "width": SIDE},
        "image_grid_pinpoints": [[SIDE, 2 * SIDE]],
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    prompt = VIDEO + text(1, 3)
    colors = np.random.default_rng(6).integers(0, 256, (3, SIDE, SIDE, 3), np.uint8)
    pixels = (colors.transpose(0, 3, 1, 2) / np.float32(255) - 0.5) / np.float32(0.25)
    prepared = pixels.astype(np.float32), (3, 1, 1), FrameTimes((0.0, 0.5, 1.0), 2.0)
    larger = colors.repeat(2, 1).repeat(3, 2)
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [[colors]], logprobs=0)
        model.check(output, [prepared])
        (resized,) = model.generate(llm, [prompt], [[larger]], logprobs=0)
        assert resized.prompt_token_ids == output.prompt_token_ids


def test_ranks_get_the_embeddings_of_frames(model: MediaTestModel) -> None:
    with model.llm(tensor_parallel_size=2, max_num_batched_tokens=13) as llm:
        for output, own in zip(model.generate(llm, PROMPTS, VIDEOS), VIDEOS, strict=True):
            model.check(output, own)


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    pixels, grid, times = FEW
    with model.llm() as llm:

        def refuse(message: str, *videos: object, prompt: list[int] = VIDEO) -> None:
            with pytest.raises(EngineError, match=message) as refused:
                model.generate(llm, [prompt], [videos])
            assert refused.value.code == "INVALID_ARGUMENT"

        refuse(r"frames \[frames, 3, 16, 16\] .* got \[2, 3, 16, 8\]", (pixels[..., :8], *FEW[1:]))
        refuse(r"got \[2, 3, 16, 16\] and \(1, 2, 1\)", (pixels, (1, 2, 1), times))
        refuse(r"got \[0, 3, 16, 16\]", (pixels[:0], (0, 1, 1), times))
        refuse("video 0 has pixels that are not finite", (pixels * np.nan, grid, times))
        refuse("for 1 videos: each video needs one", FEW, prompt=text(1, 3))
        (output,) = model.generate(llm, [VIDEO + text(1, 3)], [[FEW]])
        model.check(output, [FEW])


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
