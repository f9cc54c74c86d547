"""Videos of Gemma 4 through the engine: tokens, and texts around frames, are those of
`transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import FrameTimes
from tokenizers import Tokenizer
from transformers import PreTrainedModel
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.video_utils import VideoMetadata

from tests.media.gemma4_models import (
    END,
    PLACEHOLDER,
    SIDE,
    START,
    VIDEO,
    Gemma4TestModel,
    Patches,
    Video,
    gemma4,
    gemma4_unified,
    unified_image,
)
from tests.media.gemma4_models import image as image_of_tower
from tests.media.media_model import encoded
from tests.media.video_models import text_without_meaning
from tests.parity.tiny_models import save

_MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "small": lambda: gemma4("small"),
    "large": lambda: gemma4("large"),
    "unified": gemma4_unified,
}
words = text_without_meaning


@pytest.fixture(scope="module", params=_MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Gemma4TestModel:
    path = tmp_path_factory.mktemp(kind)
    torch.manual_seed(0)
    model = Gemma4TestModel(path, save(_MAKERS[kind](), path))
    model.argument = "videos"
    return model


def image(kind: str, seed: int, rows: int, columns: int) -> Patches:
    """Of rows x columns tokens."""
    if kind == "unified":
        return unified_image(seed, rows, columns)
    return image_of_tower(seed, rows * SIDE, columns * SIDE)


def video(kind: str, seed: int, *seconds: float) -> Video:
    """Frames of 2 x 3 tokens at these times."""
    frames = [image(kind, 10 * seed + number, 2, 3) for number in range(len(seconds))]
    _, (_, height, width) = frames[0]
    values = np.concatenate([values for values, _ in frames])
    return values, (len(frames), height, width), FrameTimes(seconds, 1.0)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos(model: Gemma4TestModel, kind: str, executor: str) -> None:
    few, late = video(kind, 1, 0.0, 0.5, 1.0), video(kind, 2, 61.0, 62.5)
    prompts = [
        words(1, 3) + [VIDEO] + words(2, 5) + [VIDEO] + words(3, 2),
        [VIDEO] + words(4, 4),
        words(5, 30),
    ]
    videos = [[few, late], [few], []]
    assert model.check_all(prompts, videos, executor=executor) == 3 + 2, "a frame is an item"


def test_texts_around_frames(model: Gemma4TestModel, kind: str) -> None:
    tokenizer = Tokenizer.from_file(str(model.path / "tokenizer.json"))
    stub = SimpleNamespace(boi_token="<|image>", eoi_token="<image|>", video_token="<|video|>")
    with model.llm() as llm:
        for seconds in ((0.0,), (0.0, 0.5, 1.0), (61.0, 62.5)):
            metadata = VideoMetadata(len(seconds), fps=2.0, frames_indices=[2 * s for s in seconds])
            inputs = {"num_soft_tokens_per_video": [6], "video_metadata": [metadata]}
            written = Gemma4Processor.replace_video_token(stub, inputs, 0)
            (output,) = model.generate(llm, [[130, VIDEO, 131]], [[video(kind, 1, *seconds)]])
            assert output.prompt_token_ids == [130, *tokenizer.encode(written).ids, 131]


@pytest.mark.parametrize("step", [12, 23])
def test_images_and_videos(model: Gemma4TestModel, kind: str, step: int) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = words(1, 8) + [PLACEHOLDER] + words(2, 3) + [VIDEO] + words(3, 20)
    picture, own = image(kind, 7, 2, 2), video(kind, 1, 0.0, 1.0)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[own]], images=[[picture]], logprobs=0)
        assert encoded(llm) == 1 + 2
    model.check(output, [picture, own])


def test_frames_become_patches(model: Gemma4TestModel, kind: str) -> None:
    """Of as many tokens as the settings allow."""
    name = "Gemma4UnifiedVideoProcessor" if kind == "unified" else "Gemma4VideoProcessor"
    settings = {"video_processor_type": name, "patch_size": 4, "max_soft_tokens": 6}
    (model.path / "video_preprocessor_config.json").write_text(json.dumps(settings))
    side = 4 * SIDE
    colors = np.random.default_rng(6).integers(0, 256, (2, 2 * side, 3 * side, 3), np.uint8)
    patch, rows, columns = (side, 2, 3) if kind == "unified" else (4, 2 * SIDE, 3 * SIDE)
    cut = (colors / np.float32(255)).reshape(2, rows, patch, columns, patch, 3)
    values = cut.transpose(0, 1, 3, 2, 4, 5).reshape(2 * rows * columns, -1)
    prepared = values.astype(np.float32), (2, rows, columns), FrameTimes((0.0, 1.0), 1.0)
    prompt = [VIDEO, *words(1, 3)]
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [[(colors, 1.0)]], logprobs=0)
        model.check(output, [prepared])
        larger = colors.repeat(2, 1).repeat(2, 2)
        (resized,) = model.generate(llm, [prompt], [[(larger, 1.0)]], logprobs=0)
    assert resized.prompt_token_ids == output.prompt_token_ids
    assert output.prompt_token_ids.count(START) == output.prompt_token_ids.count(END) == 2


def test_videos_that_do_not_fit_are_refused(model: Gemma4TestModel, kind: str) -> None:
    values, grid, times = video(kind, 1, 0.0, 1.0)
    with model.llm() as llm:
        for own, message in (
            ((values, grid, FrameTimes((0.0,), 1.0)), "times of 2 frames, got .* and 1"),
            ((values[:, :-1], grid, times), "patches must be"),
            ((values * np.nan, grid, times), "has pixels that are not finite"),
        ):
            model.check_refused(llm, [VIDEO], [own], message)
