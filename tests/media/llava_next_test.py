"""Images whose rows of patches go across tiles, through the engine: the tokens of LLaVA-Next are
those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.models.multimodal.llava_next import LlavaNextModel
from safetensors.torch import load_file, save_file
from transformers import GraniteConfig, PreTrainedModel, SiglipVisionConfig
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

from tests.media.media_model import MediaTestModel, newer_name, text
from tests.media.tiny_tiled_models import (
    LLAVA_NEXT_PLACEHOLDER,
    LLAVA_NEXT_SIZES,
    LLAVA_NEXT_TILE,
    llava_next,
)
from tests.parity.tiny_models import TEXT_SIZES, save

IMAGE = [LLAVA_NEXT_PLACEHOLDER]
TILE_TOKENS = 16
Tiles = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, tiles: int, height: int, width: int) -> Tiles:
    """So many tiles and the whole image of an image that had this size."""
    shape = (1 + tiles, *LLAVA_NEXT_TILE)
    pixels = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return pixels, (1, height, width)


# In grids of 1 x 2, 2 x 1, 2 x 2 and 1 x 3 tiles; with margins at no, both, or the other sides.
WIDE, TALL, SQUARE, LONG = (
    image(1, 2, 16, 32),
    image(2, 2, 30, 9),
    image(3, 4, 60, 41),
    image(4, 3, 9, 50),
)


def image_model(
    path: Path, reference: PreTrainedModel, *, logits_scaling: float = 1.0
) -> MediaTestModel:
    """`logits_scaling` divides logits, which `transformers` leaves out."""

    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        most = max((len(tiles) for tiles, _ in images), default=0)
        padded = [np.pad(t, [(0, most - len(t))] + [(0, 0)] * 3) for t, _ in images]
        with torch.inference_mode():
            return (
                reference(
                    torch.tensor([ids]),
                    pixel_values=torch.tensor(np.stack(padded)) if images else None,
                    image_sizes=torch.tensor([size[1:] for _, size in images]) if images else None,
                    use_cache=False,
                ).logits[0]
                / logits_scaling
            )

    return MediaTestModel(path, logits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("llava_next")
    torch.manual_seed(0)
    return image_model(path, save(llava_next(), path))


PROMPTS = [
    text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
    IMAGE + text(4, 4),
    IMAGE + text(6, 3),
    text(5, 30),
]
IMAGES = [[WIDE, TALL], [SQUARE], [LONG], []]


def check(model: MediaTestModel, **options: Any) -> int:
    """All prompts through the engine; returns how many items were encoded."""
    return model.check_all(PROMPTS, IMAGES, **options)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert check(model, executor=executor) == 4, "an image is an item"


def test_granite_behind_several_layers_of_siglip(tmp_path: Path) -> None:
    torch.manual_seed(0)
    siglip = SiglipVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=LLAVA_NEXT_TILE[1],
        patch_size=4,
        vision_use_head=False,
    )
    granite = GraniteConfig(
        **TEXT_SIZES, embedding_multiplier=3.0, attention_multiplier=0.3, logits_scaling=2.0
    )
    reference = llava_next(
        vision_config=siglip,
        text_config=granite,
        vision_feature_layer=[-2, 1],
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    )
    model = image_model(tmp_path, save(reference, tmp_path), logits_scaling=2.0)
    check(model)


@pytest.mark.parametrize("step", [5, 17])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [SQUARE, LONG]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    other = SQUARE[0], (1, 60, 55)  # the same tiles with other margins
    with model.llm() as llm:
        cached = []
        for own in (SQUARE, other, SQUARE):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached[:2] == [0, 0] and cached[2] >= 48


def test_numbers_of_tokens_are_those_of_the_processor() -> None:
    made = LlavaNextModel.from_config(llava_next().config.to_dict())
    processor = LlavaNextProcessor.__new__(LlavaNextProcessor)
    processor.image_processor = type("", (), {"image_grid_pinpoints": LLAVA_NEXT_SIZES})()
    processor.patch_size, processor.num_additional_image_tokens = 4, 0
    sides = np.random.default_rng(0).integers(1, 100, (200, 2)).tolist()
    media = made.traits.media
    assert media is not None and media.most_tokens == 16 + 8 * 9
    for height, width in sides:
        tokens = processor._get_number_of_features(height, width, 16, 16)
        for tiles in (2, 3, 4):
            pixels, size = image(1, tiles, height, width)
            try:
                found = made.features(PreparedMedia("image", pixels, size))
            except ValueError:
                continue
            assert found.tokens == tokens <= media.most_tokens
            break
        else:
            pytest.fail("no number of tiles is right")


def test_newer_checkpoints_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    newer = {newer_name(name): tensor for name, tensor in tensors.items()}
    assert "model.image_newline" in newer and "lm_head.weight" in newer
    save_file(newer, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    check(MediaTestModel(tmp_path, model.reference))


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            model.check_refused(llm, IMAGE, images, message)

        tiles = WIDE[0]
        refuse("image 0: an image of this model has a size: give", tiles)
        refuse(r"of 41 x 60 pixels must be \[5, 3, 16, 16\], got \[3, 3", (tiles, (1, 60, 41)))
        refuse("must be 1 and two numbers", (tiles, (1, 0, 41)))
        refuse("must be 1 and two numbers", (tiles, (2, 16, 32)))
        refuse("image 0 has pixels that are not finite", (tiles * np.nan, WIDE[1]))


def test_ranks_get_the_embeddings_of_images(model: MediaTestModel) -> None:
    check(model, tensor_parallel_size=2, max_num_batched_tokens=13)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", WIDE)
