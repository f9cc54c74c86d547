"""Idefics2 through the engine: images of any size, some of them divided into quarters, have the
tokens of `transformers`, as many as queries whatever their size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.idefics2 import Idefics2Model
from pagemill.render.media.processors import open_processor
from PIL import Image
from transformers import Idefics2Config, Idefics2ForConditionalGeneration, PreTrainedModel

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER, AROUND = 3, 4
IMAGE = [PLACEHOLDER]
WORDS = {AROUND: "<fake_token_around_image>"}
PATCH, SIDE, QUERIES = 4, 10, 5
CHANNELS = 3 * PATCH**2
Patches = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, row by row."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


def quartered(seed: int, quarter: tuple[int, int], whole: tuple[int, int]) -> Patches:
    """Four quarters of a size in patches, and the whole image."""
    count, each = whole[0] * whole[1], quarter[0] * quarter[1]
    blocks = 4 + -(-count // each)
    values = np.random.default_rng(seed).normal(size=(blocks, *quarter, CHANNELS))
    return values.astype(np.float32), (2, *whole)


def parts(image: Patches) -> list[Patches]:
    """What the tower encodes."""
    values, (_, height, width) = image
    if values.ndim == 2:
        return [image]
    quarters = [(each.reshape(-1, CHANNELS), (1, *values.shape[1:3])) for each in values[:4]]
    whole = values[4:].reshape(-1, CHANNELS)[: height * width]
    return [*quarters, (whole, (1, height, width))]


# Fewer patches than rows of five queries hold, as many, and more.
SMALL, EXACT, LARGE = image(1, 1, 3), image(2, 6, 10), image(3, 10, 9)
QUARTERED = quartered(4, (5, 4), (9, 8))
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE,
]
IMAGES = [[LARGE, SMALL], [QUARTERED], [], [EXACT, LARGE]]


def idefics2(perceiver: dict[str, Any] | None = None, **settings: Any) -> PreTrainedModel:
    config = Idefics2Config(
        text_config=TEXT_SIZES | {"model_type": "mistral"},
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "patch_size": PATCH,
            "image_size": SIDE * PATCH,
            "layer_norm_eps": 1e-3,
        },
        perceiver_config={
            "hidden_size": TEXT_SIZES["hidden_size"],
            "resampler_n_latents": QUERIES,
            "resampler_depth": 2,
            "resampler_n_heads": 4,
            "resampler_head_dim": 12,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-3,
        }
        | (perceiver or {}),
        image_token_id=PLACEHOLDER,
        **settings,
    )
    config._attn_implementation = "eager"
    return Idefics2ForConditionalGeneration(config)


def padded(patches: Patches) -> tuple[np.ndarray, np.ndarray]:
    """Pixels [3, side, side] with the image at the upper left, and a mask of it."""
    values, (_, height, width) = patches
    cut = values.reshape(height, width, 3, PATCH, PATCH).transpose(2, 0, 3, 1, 4)
    pixels = np.ones((3, SIDE * PATCH, SIDE * PATCH), np.float32)
    mask = np.zeros(pixels.shape[1:], np.int64)
    pixels[:, : height * PATCH, : width * PATCH] = cut.reshape(3, height * PATCH, -1)
    mask[: height * PATCH, : width * PATCH] = 1
    return pixels, mask


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        media: dict[str, torch.Tensor] = {}
        if items := [padded(part) for each in images for part in parts(each)]:
            pixels, masks = (
                torch.tensor(np.stack(each))[None] for each in zip(*items, strict=True)
            )
            media = {"pixel_values": pixels, "pixel_attention_mask": masks}
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **media, use_cache=False).logits[0]

    return MediaTestModel(path, logits, WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("idefics2")
    torch.manual_seed(0)
    return image_model(path, save(idefics2(), path))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 3 + 5, "each quarter is an item"


def test_more_queries_than_a_digit_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    perceiver = {"resampler_n_latents": 18, "hidden_act": "gelu"}
    model = image_model(tmp_path, save(idefics2(perceiver), tmp_path))
    with model.llm() as llm:
        (output,) = model.generate(llm, PROMPTS[1:2], [[LARGE]], logprobs=0)
        model.check(output, [LARGE])


def test_a_resampler_of_another_size_has_the_norms_of_the_text(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = image_model(tmp_path, save(idefics2({"hidden_size": 32}), tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    config["perceiver_config"] |= {"hidden_size": 32, "rms_norm_eps": 1.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with model.llm() as llm:
        (output,) = model.generate(llm, PROMPTS[1:2], [[SMALL]], logprobs=0)
        model.check(output, [SMALL])


def test_steps_may_end_inside_an_image(model: MediaTestModel) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [QUARTERED, LARGE]
    with model.llm(max_num_batched_tokens=17) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_texts_around_quarters(model: MediaTestModel) -> None:
    tokens = IMAGE * QUERIES
    with model.llm() as llm:
        for own, count in ((SMALL, 1), (QUARTERED, 5)):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            assert output.prompt_token_ids == [20, AROUND, *[*tokens, AROUND] * count, 21]


def test_images_without_text_between_share_a_token(model: MediaTestModel) -> None:
    tokens = [AROUND, *IMAGE * QUERIES]
    with model.llm() as llm:
        (output,) = model.generate(llm, [[*IMAGE * 2, 21, *IMAGE]], [[SMALL, LARGE, SMALL]])
        assert output.prompt_token_ids == [*tokens * 2, AROUND, 21, *tokens, AROUND]
        model.check(output, [SMALL, LARGE, SMALL])


def test_files_are_cut_as_the_model_wants(model: MediaTestModel) -> None:
    settings = {
        "image_processor_type": "Idefics2ImageProcessor",
        "size": {"shortest_edge": 8, "longest_edge": 40},
        "do_image_splitting": True,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    noise = np.random.default_rng(1).integers(0, 256, (50, 80, 3), np.uint8)
    picture = Image.fromarray(noise)
    prepared = open_processor(model.path, 10**6)(picture)
    assert isinstance(prepared, tuple) and len(parts(prepared)) == 5
    with model.llm() as llm:
        (output,) = model.generate(llm, [IMAGE], [[picture]], logprobs=0)
        model.check(output, [prepared])


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        for own, why in (
            ((SMALL[0], (1, 4, 4)), r"patches must be \[16, 48\], got \[3, 48\]"),
            ((SMALL[0][:0], (1, 4, 4)), r"patches must be \[16, 48\], got \[0, 48\]"),
            (SMALL[0], "an image of this model has a grid"),
            (image(1, 1, 101), "has 101 patches; at most 100 are taken"),
            ((QUARTERED[0], (2, 30, 30)), "an image of 2 rows of slices"),
        ):
            model.check_refused(llm, IMAGE, [own], why)


@pytest.mark.parametrize(
    ("part", "settings", "why"),
    [
        ("perceiver_config", {"num_key_value_heads": 3}, "cannot share 3"),
        ("perceiver_config", {"resampler_n_latents": 4097}, "at most 4096 are supported"),
        ("vision_config", {"image_size": 3}, "has 0 places"),
        ("vision_config", {"image_size": 2**20}, "from 1 to 256"),
    ],
)
def test_settings_that_are_refused(part: str, settings: dict[str, Any], why: str) -> None:
    config = idefics2().config.to_dict()
    config[part] |= settings
    with pytest.raises(ModelConfigError, match=why):
        Idefics2Model.from_config(config)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_model.", SMALL)
