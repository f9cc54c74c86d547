"""Images of Phi-4 multimodal through the engine: tokens are those of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.phi4_multimodal import Phi4MultimodalModel
from pagemill.weights.source import ModelSource

from tests.media.media_model import MediaTestModel, text
from tests.media.phi4_models import PLACEHOLDER, SIDE, image, phi4_multimodal

IMAGE = [PLACEHOLDER]
# Of whole tiles; with a margin of whole and of half tokens below, and at the right.
WHOLE, ONE, LOW, NARROW, LONG = (
    image(1, 2 * SIDE, SIDE),
    image(2, SIDE, SIDE),
    image(3, SIDE + 2, 2 * SIDE),
    image(4, SIDE, SIDE + 1),
    image(5, 3, 3 * SIDE),
)


@pytest.fixture(scope="module", name="model")
def _phi4(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return phi4_multimodal(tmp_path_factory.mktemp("phi4_multimodal"))[1]


PROMPTS = [
    text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
    IMAGE + text(4, 4),
    IMAGE + text(6, 3) + IMAGE,
    text(5, 30),
]
IMAGES = [[WHOLE, ONE], [LOW], [NARROW, LONG], []]


def _check(model: MediaTestModel, **options: Any) -> int:
    return model.check_all(PROMPTS, IMAGES, **options)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert _check(model, executor=executor) == 5 + 5 + 1, "the token between is encoded once"


def test_tokens_of_an_image(model: MediaTestModel) -> None:
    with model.llm(skip_tokenizer_init=True) as llm:
        for own, rows, columns in ((WHOLE, 4, 2), (LOW, 3, 4), (NARROW, 2, 3), (LONG, 2, 6)):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            expected = IMAGE * (rows * (columns + 1) + 1 + 2 * 3)
            assert output.prompt_token_ids == [20, *expected, 21]


@pytest.mark.parametrize("step", [5, 17])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    assert _check(model, max_num_batched_tokens=step) == 11


def test_another_layer_of_the_tower(tmp_path: Path) -> None:
    _check(phi4_multimodal(tmp_path, feature_layer=-1)[1])


def test_crops_of_another_size_are_refused(model: MediaTestModel) -> None:
    config = ModelSource.open(model.path).config
    vision = {**config["vision_config"], "crop_size": 2 * config["vision_config"]["image_size"]}
    with pytest.raises(ModelConfigError, match="crop_size is 32, but a tile has image_size 16"):
        Phi4MultimodalModel.from_config({**config, "vision_config": vision})


def test_prefixes_are_those_of_equal_images(model: MediaTestModel) -> None:
    """Equal tiles with another margin are another image."""
    prompt = text(1, 10) + IMAGE + text(2, 40)
    other = (LOW[0], (1, SIDE + 1, 2 * SIDE - 1))
    with model.llm() as llm:
        cached: list[int] = []
        for own in (LOW, other, LOW):
            (output,) = model.generate(llm, [prompt], [[own]])
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached[:2] == [0, 0] and cached[2] >= 48


def test_language_model_only(model: MediaTestModel) -> None:
    model.check_language_model_only("img_processor.", ONE)


def test_ranks_and_stages(model: MediaTestModel) -> None:
    model.check_divided()
    _check(model, tensor_parallel_size=2, max_num_batched_tokens=13)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            model.check_refused(llm, IMAGE, images, message)

        tiles, grid = LOW
        refuse(r"has a grid: give \(tiles, \(1, height, width\)\)", tiles)
        refuse(r"6 x 8 patches must be \[5, 3, 16, 16\], .* got a grid", (tiles[:-1], grid))
        refuse(r"got a grid of \[2, 6, 8\]", (tiles, (2, 6, 8)))
        refuse(r"got a grid of \[1, 0, 8\]", (tiles, (1, 0, 8)))
        refuse("has 37 tiles; at most 36 are taken", image(1, 1, 37 * SIDE))
        refuse("image 0 has pixels that are not finite", (tiles * np.nan, grid))
