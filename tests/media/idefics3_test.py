"""Images in tiles through the engine: the tokens of SmolVLM and Idefics3 are those of
`transformers`, and so are the texts around tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from tokenizers import Tokenizer
from transformers import PreTrainedModel
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from tests.media.media_model import MediaTestModel, encoded, encoder_outputs, media_prompts, text
from tests.parity.tiny_models import (
    SMOLVLM_PLACEHOLDER,
    SMOLVLM_TILE,
    SMOLVLM_WORDS,
    make,
    save,
    smolvlm,
)

IMAGE = [SMOLVLM_PLACEHOLDER]
TILE_TOKENS = 4
Tiles = np.ndarray | tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, rows: int = 0, columns: int = 0) -> Tiles:
    """Rows and columns of tiles and the whole image; without rows, that alone."""
    tiles = np.random.default_rng(seed).normal(size=(rows * columns + 1, *SMOLVLM_TILE))
    tiles = tiles.astype(np.float32)
    return (tiles, (1, rows, columns)) if rows else tiles[0]


ONE, WIDE, TALL = image(1), image(2, 1, 3), image(3, 2, 2)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        tiles = [each[0] if isinstance(each, tuple) else each[None] for each in images]
        pixels = torch.tensor(np.concatenate(tiles)[None]) if tiles else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, SMOLVLM_WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("smolvlm")
    return image_model(path, make("smolvlm", path))


PROMPTS = media_prompts(IMAGE)
IMAGES = [[ONE, WIDE], [TALL], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 1 + 4 + 5, "each tile is an item"


def test_idefics3(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind: Literal["Idefics3"] = "Idefics3"
    model = image_model(tmp_path, save(smolvlm(kind), tmp_path))
    model.check_all(PROMPTS, IMAGES)


def test_texts_around_tiles(model: MediaTestModel) -> None:
    tokenizer = Tokenizer.from_file(str(model.path / "tokenizer.json"))
    with model.llm() as llm:
        for own, rows, columns in ((ONE, 0, 0), (WIDE, 1, 3), (TALL, 2, 2)):
            expected = get_image_prompt_string(
                rows,
                columns,
                TILE_TOKENS,
                fake_token_around_image="<fake_token_around_image>",
                image_token="<image>",
                global_image_token="<global-img>",
            )
            (output,) = model.generate(llm, [IMAGE], [[own]])
            assert output.prompt_token_ids == tokenizer.encode(expected).ids


@pytest.mark.parametrize("step", [5, 10, 17])
def test_steps_may_end_inside_a_tile(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [WIDE, TALL]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    other = (TALL[0][::-1].copy(), (1, 2, 2))
    with model.llm() as llm:
        cached = []
        for own in (TALL, other, TALL):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        # The texts before the first tile are those of any image with tiles.
        assert cached[:2] == [0, 0] and cached[2] >= 64
        assert encoded(llm) == 5, "equal tiles are encoded once, in any order"


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
        refuse(r"image 0: an image must be \[3, 18, 18\], got \[4, 3, 18, 18\]", tiles)
        refuse(r"1 x 2 x 2 tiles must be \[5, 3, 18, 18\]", (tiles, (1, 2, 2)))
        refuse(r"got a grid of \[3, 1, 1\]", (tiles, (3, 1, 1)))
        refuse(r"got a grid of \[1, -1, 3\]", (tiles, (1, -1, 3)))
        refuse("image 0 has pixels that are not finite", (tiles * np.nan, (1, 1, 3)))
        refuse("1 placeholders .token 3. for 2 images", ONE, ONE)
        (output,) = model.generate(llm, [IMAGE + text(1, 3)], [[TALL]])
        model.check(output, [TALL])


def test_ranks_get_the_embeddings_of_tiles(model: MediaTestModel) -> None:
    with model.llm(tensor_parallel_size=2, max_num_batched_tokens=13) as llm:
        for output, own in zip(model.generate(llm, PROMPTS, IMAGES), IMAGES, strict=True):
            model.check(output, own)


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()
