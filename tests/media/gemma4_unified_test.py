"""Images of Gemma 4 12B, which has a linear layer of patches in place of a tower, through the
engine: what is generated is that of `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.vision.gemma4_unified_vision import Gemma4UnifiedVisionEmbedder
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.media.gemma4_models import (
    END,
    PLACEHOLDER,
    START,
    Gemma4TestModel,
    gemma4_unified,
)
from tests.media.gemma4_models import UNIFIED_PLACES as PLACES
from tests.media.gemma4_models import unified_image as image
from tests.media.media_model import media_prompts, text
from tests.parity.tiny_models import save

IMAGE = [PLACEHOLDER]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Gemma4TestModel:
    path = tmp_path_factory.mktemp("gemma4_unified")
    torch.manual_seed(0)
    return Gemma4TestModel(path, save(gemma4_unified(), path))


# The last one has numbers of columns of two digits.
ONE, OTHER, LONG = image(1, 2, 3), image(2, 3, 2), image(3, 1, 20)
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 20) + IMAGE,
]
IMAGES = [[ONE, OTHER], [LONG], [], [ONE]]


@pytest.mark.parametrize(
    "options", [{}, {"executor": "torch"}, {"max_num_batched_tokens": 20, "max_num_seqs": 2}]
)
def test_tokens_of_images(model: Gemma4TestModel, options: dict[str, Any]) -> None:
    assert model.check_all(PROMPTS, IMAGES, **options) == 3, "equal images are encoded once"


def test_an_image_has_tokens_around_it(model: Gemma4TestModel) -> None:
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[OTHER]])
    assert output.prompt_token_ids == [20, START, *IMAGE * 6, END, 21]


def test_tokens_of_an_image_see_each_other(model: Gemma4TestModel) -> None:
    """In windowed layers, unless the configuration says otherwise."""
    program = build(ModelSource.open(model.path), BuildOptions()).program_text
    assert program.count("item_ends=1") == 2


def test_places_are_those_of_the_table() -> None:
    with pytest.raises(ModelConfigError, match="mm_posemb_size is 15; it must be at least 16"):
        Gemma4UnifiedVisionEmbedder({"mm_posemb_size": 15})
    with pytest.raises(ModelConfigError, match="type 'siglip' is not supported"):
        Gemma4UnifiedVisionEmbedder({"model_type": "siglip"})
    own = Gemma4UnifiedVisionEmbedder({"mm_posemb_size": PLACES})
    cells = np.array([[0, 0], [PLACES - 1, 17]])
    parts = np.split(own.places(cells, PLACES, 18), [3, 35, 38], 1)
    column_high, column_low, row_high, row_low = (part.argmax(1) for part in parts)
    assert (32 * column_high + column_low).tolist() == [0, 2 * 17]
    assert (32 * row_high + row_low).tolist() == [1, 2 * PLACES - 1]


def test_images_that_do_not_fit_are_refused(model: Gemma4TestModel) -> None:
    with model.llm() as llm:
        for own, message in (
            (ONE[0], "an image of this model has a grid"),
            ((ONE[0], (1, 3, 3)), r"patches must be \[9, 432\], got \[6, 432\]"),
            (image(1, 1, PLACES + 1), "at most 48 patches in a row"),
        ):
            model.check_refused(llm, IMAGE, [own], message)


def test_text_alone_ranks_and_stages(model: Gemma4TestModel) -> None:
    model.check_language_model_only("vision_embedder", ONE)
    model.check_divided()
