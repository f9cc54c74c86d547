"""Images of Gemma 3 through the engine: the tokens of an image see each other, and what is
generated is that of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.media_model import (
    MediaTestModel,
    encoder_outputs,
    media_prompts,
    newer_name,
    text,
)
from tests.media.tiny_tiled_models import GEMMA3_PLACEHOLDER, GEMMA3_TILE, GEMMA3_WORDS, gemma3
from tests.parity.tiny_models import save

IMAGE = [GEMMA3_PLACEHOLDER]
START, END, NEWLINE = 4, 5, 6  # and with 7, 8 and 9 of two to four
TOKENS = IMAGE * 4


def image(seed: int, tiles: int = 0) -> np.ndarray:
    """An image with crops behind it; or without a number of them, pixels."""
    shape = (tiles, *GEMMA3_TILE) if tiles else GEMMA3_TILE
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


ONE, OTHER, CROPPED = image(1), image(2), image(3, 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("gemma3")
    torch.manual_seed(0)
    reference = save(gemma3(), path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        tiles = [each.reshape(-1, *GEMMA3_TILE) for each in images]
        pixels = torch.tensor(np.concatenate(tiles)) if tiles else None
        tokens = torch.tensor([ids])
        types = (tokens == GEMMA3_PLACEHOLDER).long()
        with torch.inference_mode():
            found = reference(tokens, pixel_values=pixels, token_type_ids=types, use_cache=False)
        return found.logits[0]

    return MediaTestModel(path, logits, GEMMA3_WORDS)


PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 20) + IMAGE,
]
IMAGES = [[ONE, OTHER], [CROPPED], [], [ONE]]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 2 + 3, (
        "each crop is an item, and equal ones are encoded once"
    )


@pytest.mark.parametrize("step", [5, 7, 16])
def test_no_step_ends_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompts = [text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20), *PROMPTS]
    images = [[ONE, CROPPED], *IMAGES]
    model.check_all(prompts, images, max_num_batched_tokens=step)


def test_prefixes_may_end_inside_an_image(model: MediaTestModel) -> None:
    """Blocks of 16 tokens end behind one, two and three tokens of the image."""
    for before in (13, 12, 11):
        prompt = text(before, before - 2) + IMAGE + text(7, 12)
        with model.llm(block_size=16) as llm:
            for _ in range(2):
                (output,) = model.generate(llm, [prompt], [[ONE]], logprobs=0)
                model.check(output, [ONE])
            (other,) = model.generate(llm, [prompt], [[OTHER]], logprobs=0)
            model.check(other, [OTHER])


def test_newlines_around_an_image_join_those_of_the_prompt(model: MediaTestModel) -> None:
    one = [START, *TOKENS, END]
    expected = {
        (20, *IMAGE, 21): [20, NEWLINE + 1, *one, NEWLINE + 1, 21],
        (20, NEWLINE, *IMAGE, NEWLINE + 1, 21): [20, NEWLINE + 2, *one, NEWLINE + 3, 21],
        # Those of the prompt itself are left as they are.
        (NEWLINE, NEWLINE, 20, *IMAGE): [NEWLINE, NEWLINE, 20, NEWLINE + 1, *one, NEWLINE + 1],
    }
    with model.llm() as llm:
        for prompt, tokens in expected.items():
            (output,) = model.generate(llm, [list(prompt)], [[ONE]])
            assert output.prompt_token_ids == tokens


def test_encoders_of_both_executors(model: MediaTestModel) -> None:
    (encoder,) = build(ModelSource.open(model.path), BuildOptions()).encoders
    items = [encoder.features(PreparedMedia("image", each)) for each in (ONE, OTHER)]
    native, expected = encoder_outputs(encoder, items)
    assert len(expected) == 8
    np.testing.assert_allclose(native, expected, rtol=0, atol=2e-5)


def test_newer_checkpoints_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    save_file({newer_name(name): t for name, t in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert "model.multi_modal_projector." in built.encoders[0].program_text


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            model.check_refused(llm, IMAGE, images, message)

        refuse(r"must be \[3, 18, 18\], or tiles .* got \[3, 18, 8\]", ONE[..., :8])
        refuse("an array of tiles, without a grid", (CROPPED, (1, 1, 2)))


def test_text_alone(model: MediaTestModel) -> None:
    model.check_language_model_only("vision_tower", ONE)


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()
