"""GOT-OCR2 through the engine: SAM's tower, with windows that do not divide an image, gives the
tokens of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.got_ocr2 import GotOcr2Model
from transformers import GotOcr2Config, Qwen2Config

from tests.media.got_ocr2_models import (
    IMAGE,
    PLACEHOLDER,
    TOKENS,
    VISION,
    got_ocr2,
    image,
    image_model,
)
from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.parity.tiny_models import TEXT_SIZES


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("got_ocr2")
    torch.manual_seed(0)
    return image_model(path, got_ocr2())


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: MediaTestModel, executor: str) -> None:
    a, b = image(1), image(2)
    tiles = np.stack([image(3), image(4)])
    prompts = [
        *media_prompts(IMAGE),
        IMAGE + text(6, 3),
    ]
    images = [[a, b], [b], [], [tiles]]
    with model.llm(executor=executor, max_num_batched_tokens=24) as llm:
        outputs = model.generate(llm, prompts, images, logprobs=0)
        for output, own, count in zip(outputs, images, (2, 1, 0, 2), strict=True):
            assert output.prompt_token_ids.count(PLACEHOLDER) == TOKENS * count
            model.check(output, own)
        assert encoded(llm) == 4, "equal images are encoded once"


@pytest.mark.parametrize(
    "vision",
    [
        {"use_rel_pos": False},
        {"use_abs_pos": False, "qkv_bias": False},
        {"window_size": 4, "global_attn_indexes": []},
    ],
    ids=str,
)
def test_towers_that_leave_parts_out(tmp_path: Path, vision: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = image_model(tmp_path, got_ocr2(**vision))
    with model.llm() as llm:
        (output,) = model.generate(llm, [text(1, 3) + IMAGE], [[image(1)]], logprobs=0)
        model.check(output, [image(1)])


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match=r"must be \[3, 32, 32\]"):
        model.generate(llm, [IMAGE], [[image(1)[:, 8:]]])


@pytest.mark.parametrize(
    ("vision", "message"),
    [
        ({"image_size": 24}, "has 6 patches in a row, which must be a multiple of 4"),
        ({"window_size": 9}, "at least window_size, 9"),
        ({"num_attention_heads": 5}, "5 heads cannot share 48 features"),
        ({"model_type": "sam_vision_model"}, "a vision tower of type"),
    ],
)
def test_unknown_towers_are_refused(vision: dict[str, Any], message: str) -> None:
    config = GotOcr2Config(vision_config=VISION, text_config=Qwen2Config(**TEXT_SIZES)).to_dict()
    config["vision_config"] |= vision
    with pytest.raises(ModelConfigError, match=message):
        GotOcr2Model.from_config(config | {"image_token_index": PLACEHOLDER})


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", image(1))
