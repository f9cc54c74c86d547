"""Videos of VideoLLaMA 3 through the engine: tokens, and texts in front of frames, are those of
`transformers`, and so are the squares of patches that have no token."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import FrameTimes
from tokenizers import Tokenizer
from transformers.models.video_llama_3.processing_video_llama_3 import VideoLlama3Processor
from transformers.video_utils import VideoMetadata

from tests.media.frame_videos import check_one_kind
from tests.media.media_model import MediaTestModel, encoded
from tests.media.video_llama3_models import (
    CHANNELS,
    IMAGE,
    MERGE,
    VIDEO,
    Patches,
    Video,
    kept_tokens,
    video_llama3,
)
from tests.media.video_models import text_without_meaning

_WORDS = {
    VIDEO: "<|video_pad|>",
    **{20 + second: f"Time {second / 2:.1f}s:" for second in range(8)},
    **{40 + second: f",Time {second / 2:.1f}s:" for second in range(8)},
}


def video(seed: int, time: int, height: int, width: int) -> Video:
    """Frames of height x width patches, two a second. All of the second one is as in the first, and
    half of the third as in the second."""
    values = np.random.default_rng(seed).normal(size=(time, height * width, CHANNELS))
    if time > 1:
        values[1] = values[0]
    if time > 2:
        values[2, : height * width // 2] = values[1, : height * width // 2]
    values = values.reshape(-1, CHANNELS).astype(np.float32)
    times = FrameTimes(tuple(frame / 2 for frame in range(time)), 2.0)
    return values, (time, height, width), times


PAIR, MANY, STILL = video(1, 2, 4, 6), video(2, 4, 6, 4), video(3, 1, 4, 4)
PICTURE: Patches = (
    np.random.default_rng(4).normal(size=(6, CHANNELS)).astype(np.float32),
    (1, 2, 3),
)


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    model = video_llama3(tmp_path_factory.mktemp("video_llama3"), _WORDS)
    model.argument = "videos"
    return model


words = text_without_meaning
PROMPTS = [
    words(1, 3) + [VIDEO] + words(2, 5) + [VIDEO] + words(3, 2),
    [VIDEO] + words(4, 4),
    words(5, 30),
]
VIDEOS = [[PAIR, STILL], [MANY], []]


@pytest.mark.parametrize("options", [{"executor": "torch"}, {}, {"tensor_parallel_size": 2}])
def test_tokens_of_videos(model: MediaTestModel, options: dict[str, Any]) -> None:
    model.check_all(PROMPTS, VIDEOS, **options)


@pytest.mark.parametrize("item", [STILL, PAIR, MANY], ids=["still", "pair", "many"])
def test_frames_have_the_texts_and_tokens_of_transformers(
    model: MediaTestModel, item: Video
) -> None:
    values, grid, times = item
    frames = len(times.seconds)
    metadata = VideoMetadata(frames, fps=times.rate, frames_indices=list(range(frames)))
    inputs = {
        "video_grid_thw": torch.tensor([grid]),
        "video_merge_sizes": torch.tensor([MERGE]),
        "video_compression_mask": kept_tokens(item),
        "video_metadata": [metadata],
    }
    stub = SimpleNamespace(video_token="<|video_pad|>")
    written = VideoLlama3Processor.replace_video_token(stub, inputs, 0)
    expected = Tokenizer.from_file(str(model.path / "tokenizer.json")).encode(written).ids
    with model.llm() as llm:
        (output,) = model.generate(llm, [[130, VIDEO, 131]], [[item]])
        assert output.prompt_token_ids == [130, *expected, 131]
    squares = len(values) // MERGE**2 // frames
    counts = {1: [squares], 2: [squares, 1], 4: [squares, 1, squares // 2, squares]}[frames]
    assert kept_tokens(item).reshape(frames, -1).sum(1).tolist() == counts


@pytest.mark.parametrize("step", [16, 23, 64])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = words(1, 8) + [IMAGE] + words(2, 3) + [VIDEO] + words(3, 20)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[MANY]], images=[[PICTURE]], logprobs=0)
        assert encoded(llm) == 1 + 4
    model.check(output, [PICTURE, MANY])


def test_one_kind_of_media_alone(model: MediaTestModel) -> None:
    check_one_kind(model, (IMAGE, PICTURE), (VIDEO, PAIR))


def test_frames_become_patches(model: MediaTestModel) -> None:
    """All frames share the largest number of pixels."""
    settings = {
        "video_processor_type": "VideoLlama3VideoProcessor",
        "patch_size": 4,
        "size": {"shortest_edge": 64, "longest_edge": 3 * 16 * 16},
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (model.path / "video_preprocessor_config.json").write_text(json.dumps(settings))
    colors = np.random.default_rng(6).integers(0, 256, (3, 16, 16, 3), np.uint8)
    pixels = (colors / np.float32(255) - 0.5) / np.float32(0.25)
    cut = pixels.reshape(3, 2, 2, 4, 2, 2, 4, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    prepared = cut.reshape(-1, CHANNELS).astype(np.float32), (3, 4, 4), FrameTimes((0, 1, 2), 2.0)
    prompt = [VIDEO, *words(1, 3)]
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [[colors]], logprobs=0)
        model.check(output, [prepared])
        (larger,) = model.generate(llm, [prompt], [[colors.repeat(2, 1).repeat(2, 2)]], logprobs=0)
        assert larger.prompt_token_ids == output.prompt_token_ids


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    values, grid, times = PAIR
    with model.llm() as llm:
        for own, message in (
            ((values, (3, 4, 6), times), r"must have 72 of them and the times of 3 frames"),
            ((values[:40], (2, 5, 4), times), "two multiples of 2"),
            ((values * np.nan, grid, times), "has pixels that are not finite"),
        ):
            model.check_refused(llm, [VIDEO], [own], message)
