"""Images with fewer tokens than patches, through the engine: the tokens of LLaVA-OneVision are
those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.models.multimodal.llava_onevision import LlavaOnevisionModel
from transformers import PreTrainedModel, Qwen2Config
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

from tests.media.media_model import MediaTestModel, text
from tests.media.tiny_tiled_models import (
    LLAVA_NEXT_PLACEHOLDER,
    LLAVA_NEXT_TILE,
    llava_onevision,
)
from tests.parity.tiny_models import TEXT_SIZES, save

IMAGE = [LLAVA_NEXT_PLACEHOLDER]
# With its size, or of one tile.
Image = tuple[np.ndarray, tuple[int, int, int]] | np.ndarray


def image(seed: int, tiles: int, height: int, width: int) -> Image:
    """So many tiles and the whole image of an image that had this size."""
    shape = (1 + tiles, *LLAVA_NEXT_TILE)
    pixels = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return pixels, (1, height, width)


def one_tile(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=LLAVA_NEXT_TILE).astype(np.float32)


# In grids of 1 x 2, 2 x 2, 3 x 3 and 3 x 3 tiles, of which the first has a token for each patch
# and the second so many that it is just interpolated; the last one has margins.
WIDE, SQUARE, LARGE, TALL = (
    image(1, 2, 16, 32),
    image(2, 4, 31, 29),
    image(3, 9, 60, 60),
    image(4, 9, 70, 41),
)
PROMPTS = [
    text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
    IMAGE + text(4, 4),
    IMAGE + text(6, 3),
    text(7, 2) + IMAGE + text(8, 2) + IMAGE,
    text(5, 30),
]
IMAGES: list[list[Image]] = [[WIDE, TALL], [SQUARE], [LARGE], [one_tile(1), one_tile(2)], []]


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def inputs(images: Sequence[Image]) -> dict[str, torch.Tensor]:
        if not images:
            return {}
        tiles, sizes, numbers = [], [], [1] * len(images)
        for each in images:
            pixels, size = each if isinstance(each, tuple) else (each[None], (1, 16, 16))
            tiles.append(pixels)
            sizes.append(size[1:])
        if not isinstance(images[0], tuple):
            numbers = [len(images)]  # several images are not divided
        most = max(map(len, tiles))
        padded = [np.pad(each, [(0, most - len(each))] + [(0, 0)] * 3) for each in tiles]
        return {
            "pixel_values": torch.tensor(np.stack(padded)),
            "image_sizes": torch.tensor(sizes),
            "batch_num_images": torch.tensor(numbers),
        }

    def logits(ids: list[int], images: Sequence[Image]) -> torch.Tensor:
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **inputs(images), use_cache=False).logits[0]

    return MediaTestModel(path, logits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("llava_onevision")
    torch.manual_seed(0)
    return image_model(path, save(llava_onevision(), path))


def check(model: MediaTestModel, **options: Any) -> int:
    """All prompts through the engine; returns how many items were encoded."""
    return model.check_all(PROMPTS, IMAGES, **options)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert check(model, executor=executor) == 6, "an image is an item"


def test_steps_may_end_inside_an_image(model: MediaTestModel) -> None:
    check(model, max_num_batched_tokens=13)


def test_a_head_is_tied_if_the_text_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text_config = Qwen2Config(**TEXT_SIZES, tie_word_embeddings=True)
    reference = llava_onevision(text_config=text_config)
    model = image_model(tmp_path, save(reference, tmp_path))
    file = tmp_path / "config.json"
    saved = file.read_text()
    assert saved.count('"tie_word_embeddings": true') == 2
    file.write_text(
        '"tie_word_embeddings": false'.join(saved.rsplit('"tie_word_embeddings": true', 1))
    )
    check(model)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    pixels, _ = LARGE
    other = pixels, (1, 60, 45)  # the same tiles with margins
    with model.llm() as llm:
        cached = []
        for own in (LARGE, other, LARGE):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached[:2] == [0, 0] and cached[2] >= 48


def test_numbers_of_tokens_are_those_of_the_processor() -> None:
    reference = llava_onevision()
    made = LlavaOnevisionModel.from_config(reference.config.to_dict())
    processor = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
    sizes = reference.config.image_grid_pinpoints
    processor.image_processor = type("", (), {"image_grid_pinpoints": sizes})()
    processor.vision_aspect_ratio, processor.num_image_tokens = "anyres_max_2", 16
    sides = np.random.default_rng(0).integers(1, 100, (200, 2)).tolist()
    media = made.traits.media
    assert media is not None and media.most_tokens == 16 + 12 * 13
    for height, width in sides:
        tokens = processor._get_number_of_features(height, width, 16, 16)
        for tiles in (2, 3, 4, 9):
            pixels, size = image(1, tiles, height, width)
            try:
                found = made.features(PreparedMedia("image", pixels, size))
            except ValueError:
                continue
            assert found.tokens == tokens <= media.most_tokens
            break
        else:
            pytest.fail("no number of tiles is right")


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, image: Any) -> None:
            model.check_refused(llm, IMAGE, [image], message)

        pixels, size = WIDE
        refuse(r"of 41 x 60 pixels must be \[10, 3, 16, 16\], got \[3, 3", (pixels, (1, 60, 41)))
        refuse(r"must be \[3, 16, 16\], got \[3, 3, 16, 16\]", pixels)
        refuse("image 0 has pixels that are not finite", (pixels * np.nan, size))


def test_ranks_get_the_embeddings_of_images(model: MediaTestModel) -> None:
    check(model, tensor_parallel_size=2, max_num_batched_tokens=13)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", WIDE)
