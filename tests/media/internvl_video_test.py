"""Videos of InternVL through the engine: tokens, and texts around frames, are those of
`transformers`. The tokenizer's file says which token stands for a video."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from tokenizers import AddedToken, Tokenizer
from transformers.models.internvl.processing_internvl import InternVLProcessor

from tests.media.frame_videos import (
    Video,
    check_beside_image,
    check_lengths,
    check_prefixes,
    check_refusals,
    check_resized,
    video,
)
from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import INTERNVL_PLACEHOLDER, INTERNVL_TILE, INTERNVL_WORDS, make

IMAGE = INTERNVL_PLACEHOLDER
VIDEO = [257]  # behind the vocabulary of the model
FRAME_TOKENS = 4
_WORDS = {
    **INTERNVL_WORDS,
    20: "Frame1: ",
    **{20 + number: f"\nFrame{number + 1}: " for number in range(1, 8)},
}
FEW, MANY, STILL = (video(seed, frames, INTERNVL_TILE) for seed, frames in ((1, 2), (2, 5), (3, 1)))
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


VIDEOS = [[FEW, STILL], [MANY], [STILL], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos_of_several_lengths(model: MediaTestModel, executor: str) -> None:
    check_lengths(model, VIDEO, VIDEOS, 2 + 1 + 5, executor=executor)


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
    check_beside_image(model, (IMAGE, PICTURE), (VIDEO[0], MANY), 2 + 5, step)


def test_prefixes_are_those_of_equal_frames(model: MediaTestModel) -> None:
    cached = check_prefixes(model, VIDEO, MANY)
    assert cached[0] == 0 and 16 <= cached[1] < 45 < cached[2]


def test_frames_are_resized(model: MediaTestModel) -> None:
    """By the settings of images, if there are none of videos."""
    _, height, width = INTERNVL_TILE
    settings = {
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "size": {"height": height, "width": width},
    }
    check_resized(model, VIDEO, height, settings)


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    check_refusals(model, VIDEO, FEW)


def test_a_tokenizer_without_the_token_takes_no_videos(tmp_path: Path) -> None:
    reference = make("internvl", tmp_path)
    model = MediaTestModel(tmp_path, lambda ids, media: reference(torch.tensor([ids])).logits[0])
    model.argument = "videos"
    with model.llm() as llm, pytest.raises(EngineError, match="this model takes no videos"):
        model.generate(llm, [VIDEO], [[FEW]])
