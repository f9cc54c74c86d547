"""Images in tiles through the engine: the tokens of Llama 4 are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.media.media_model import MediaTestModel, encoder_outputs, media_prompts, text
from tests.media.tiny_tiled_models import LLAMA4_PLACEHOLDER, LLAMA4_TILE, LLAMA4_WORDS, llama4
from tests.parity.tiny_models import save

IMAGE = [LLAMA4_PLACEHOLDER]
START, END, WHOLE, BEHIND_TILE, BEHIND_ROW = 4, 5, 6, 7, 8
TILE_TOKENS = 4
Tiles = np.ndarray | tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, rows: int = 0, columns: int = 0) -> Tiles:
    """Rows and columns of tiles and the whole image; without rows, that alone."""
    tiles = np.random.default_rng(seed).normal(size=(rows * columns + 1, *LLAMA4_TILE))
    tiles = tiles.astype(np.float32)
    return (tiles, (1, rows, columns)) if rows else tiles[0]


ONE, WIDE, TALL = image(1), image(2, 1, 3), image(3, 2, 2)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        tiles = [each[0] if isinstance(each, tuple) else each[None] for each in images]
        pixels = torch.tensor(np.concatenate(tiles)) if tiles else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, LLAMA4_WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("llama4")
    torch.manual_seed(0)
    return image_model(path, save(llama4(), path))


PROMPTS = media_prompts(IMAGE)
IMAGES = [[ONE, WIDE], [TALL], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 1 + 4 + 5, "each tile is an item"


def test_tokens_around_tiles(model: MediaTestModel) -> None:
    tile = IMAGE * TILE_TOKENS
    whole = [WHOLE, *tile, END]
    row = [*tile, BEHIND_TILE, *tile, BEHIND_ROW]
    with model.llm() as llm:
        for own, expected in ((ONE, [START, *whole]), (TALL, [START, *row, *row, *whole])):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            assert output.prompt_token_ids == [20, *expected, 21]


@pytest.mark.parametrize("step", [5, 17])
def test_steps_may_end_inside_a_tile(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [WIDE, TALL]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_encoders_of_both_executors(model: MediaTestModel) -> None:
    (encoder,) = build(ModelSource.open(model.path), BuildOptions()).encoders
    assert encoder.layout is not None
    parts = encoder.layout(PreparedMedia("image", *WIDE))
    items = [encoder.features(part) for part in parts if isinstance(part, PreparedMedia)]
    native, expected = encoder_outputs(encoder, items)
    assert len(expected) == sum(item.tokens for item in items) == 16
    np.testing.assert_allclose(native, expected, rtol=0, atol=2e-5)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Tiles) -> None:
            model.check_refused(llm, IMAGE, images, message)

        tiles = WIDE[0]
        refuse(r"image 0: an image must be \[3, 16, 16\], got \[4, 3, 16, 16\]", tiles)
        refuse(r"1 x 2 x 2 tiles must be \[5, 3, 16, 16\]", (tiles, (1, 2, 2)))
        refuse("image 0 has pixels that are not finite", (tiles * np.nan, (1, 1, 3)))


def test_ranks_get_the_embeddings_of_tiles(model: MediaTestModel) -> None:
    with model.llm(tensor_parallel_size=2, max_num_batched_tokens=13) as llm:
        for output, own in zip(model.generate(llm, PROMPTS, IMAGES), IMAGES, strict=True):
            model.check(output, own)


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()


def test_language_model_only(model: MediaTestModel) -> None:
    model.check_language_model_only("vision_model.", ONE)
