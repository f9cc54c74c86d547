"""Videos of InternVL through the engine: tokens, and texts around frames, are those of
`transformers`. The tokenizer's file says which token stands for a video."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes
from tokenizers import AddedToken, Tokenizer
from transformers.models.internvl.processing_internvl import InternVLProcessor

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import INTERNVL_PLACEHOLDER, INTERNVL_TILE, INTERNVL_WORDS, make

IMAGE = [INTERNVL_PLACEHOLDER]
VIDEO = [257]  # behind the vocabulary of the model
FRAME_TOKENS = 4
_WORDS = {
    **INTERNVL_WORDS,
    20: "Frame1: ",
    **{20 + number: f"\nFrame{number + 1}: " for number in range(1, 8)},
}
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def video(seed: int, frames: int) -> Video:
    pixels = np.random.default_rng(seed).normal(size=(frames, *INTERNVL_TILE))
    times = FrameTimes(tuple(map(float, range(frames))), 1.0)
    return pixels.astype(np.float32), (frames, 1, 1), times


FEW, MANY, STILL = video(1, 2), video(2, 5), video(3, 1)
PICTURE = np.random.default_rng(4).normal(size=(2, *INTERNVL_TILE)).astype(np.float32)


def _add_video_token(path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken("<video>", special=True)])
    tokenizer.save(str(path / "tokenizer.json"))


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("internvl")
    reference = make("internvl", path)

    def logits(ids: list[int], media: Sequence[np.ndarray | Video]) -> torch.Tensor:
        tiles = [each[0] if isinstance(each, tuple) else each for each in media]
        pixels = torch.tensor(np.concatenate(tiles)) if tiles else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    model = MediaTestModel(path, logits, _WORDS)
    model.argument = "videos"
    _add_video_token(path)
    return model


PROMPTS = [
    text(1, 3) + VIDEO + text(2, 5) + VIDEO + text(3, 2),
    VIDEO + text(4, 4),
    text(5, 4) + VIDEO,
    text(6, 30),
]
VIDEOS = [[FEW, STILL], [MANY], [STILL], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos_of_several_lengths(model: MediaTestModel, executor: str) -> None:
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, PROMPTS, VIDEOS, logprobs=0)
        for output, own in zip(outputs, VIDEOS, strict=True):
            model.check(output, own)
        assert encoded(llm) == 2 + 1 + 5, "a frame is an item, and equal ones are encoded once"


@pytest.mark.parametrize("item", [STILL, FEW, MANY], ids=["still", "few", "many"])
def test_texts_around_frames(model: MediaTestModel, item: Video) -> None:
    stub = SimpleNamespace(
        start_image_token="<img>",
        image_token="<IMG_CONTEXT>",
        end_image_token="</img>",
        image_seq_length=FRAME_TOKENS,
    )
    inputs = {"pixel_values_videos": torch.tensor(item[0])[None]}
    written = InternVLProcessor.replace_video_token(stub, inputs, 0)
    expected = Tokenizer.from_file(str(model.path / "tokenizer.json")).encode(written).ids
    with model.llm() as llm:
        (output,) = model.generate(llm, [[30, *VIDEO, 31]], [[item]])
        assert output.prompt_token_ids == [30, *expected, 31]


@pytest.mark.parametrize("step", [5, 13])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = text(1, 8) + IMAGE + text(2, 3) + VIDEO + text(3, 20)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[MANY]], images=[[PICTURE]], logprobs=0)
        assert encoded(llm) == 2 + 5
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
    assert cached[0] == 0 and 16 <= cached[1] < 45 < cached[2]


def test_frames_are_resized(model: MediaTestModel) -> None:
    """By the settings of images, if there are none of videos."""
    _, height, width = INTERNVL_TILE
    settings = {
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "size": {"height": height, "width": width},
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    colors = np.random.default_rng(6).integers(0, 256, (3, height, width, 3), np.uint8)
    pixels = (colors.transpose(0, 3, 1, 2) / np.float32(255) - 0.5) / np.float32(0.25)
    prepared = pixels.astype(np.float32), (3, 1, 1), FrameTimes((0.0, 0.5, 1.0), 2.0)
    larger = colors.repeat(2, 1).repeat(3, 2)
    with model.llm() as llm:
        (output,) = model.generate(llm, [VIDEO + text(1, 3)], [[colors]], logprobs=0)
        model.check(output, [prepared])
        (resized,) = model.generate(llm, [VIDEO + text(1, 3)], [[larger]], logprobs=0)
        assert resized.prompt_token_ids == output.prompt_token_ids


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    pixels, grid, times = FEW
    with model.llm() as llm:

        def refuse(message: str, *videos: object) -> None:
            with pytest.raises(EngineError, match=message) as refused:
                model.generate(llm, [VIDEO], [videos])
            assert refused.value.code == "INVALID_ARGUMENT"

        refuse(r"frames \[frames, 3, 16, 16\] .* got \[2, 3, 16, 8\]", (pixels[..., :8], *FEW[1:]))
        refuse(r"got \[2, 3, 16, 16\] and \(1, 2, 1\)", (pixels, (1, 2, 1), times))
        refuse("video 0 has pixels that are not finite", (pixels * np.nan, grid, times))
        (output,) = model.generate(llm, [VIDEO + text(1, 3)], [[FEW]])
        model.check(output, [FEW])


def test_a_tokenizer_without_the_token_takes_no_videos(tmp_path: Path) -> None:
    reference = make("internvl", tmp_path)
    model = MediaTestModel(tmp_path, lambda ids, media: reference(torch.tensor([ids])).logits[0])
    model.argument = "videos"
    with model.llm() as llm, pytest.raises(EngineError, match="this model takes no videos"):
        model.generate(llm, [VIDEO], [[FEW]])
