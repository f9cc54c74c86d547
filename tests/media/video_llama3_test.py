"""Images of VideoLLaMA 3 through the engine: tokens, and patches of a picture, are those of
`transformers`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pagemill.render.media.processors import open_processor
from PIL import Image
from transformers.models.video_llama_3.image_processing_pil_video_llama_3 import (
    VideoLlama3ImageProcessorPil,
)

from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.media.video_llama3_models import CHANNELS, Patches, video_llama3
from tests.media.video_llama3_models import IMAGE as PLACEHOLDER

IMAGE = [PLACEHOLDER]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, and as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


SQUARE, WIDE, TALL, DOT = image(1, 3, 3), image(2, 2, 7), image(3, 6, 4), image(4, 1, 1)


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return video_llama3(tmp_path_factory.mktemp("video_llama3"))


PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 2) + IMAGE,
]
IMAGES = [[SQUARE, WIDE], [TALL], [], [DOT, SQUARE]]


@pytest.mark.parametrize("options", [{"executor": "torch"}, {}, {"tensor_parallel_size": 2}])
def test_tokens_of_images_of_several_sizes(
    model: MediaTestModel, options: dict[str, object]
) -> None:
    with model.llm(**options) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            tokens = sum(len(patches) for patches, _ in own)
            assert output.prompt_token_ids.count(PLACEHOLDER) == tokens
            model.check(output, own)


@pytest.mark.parametrize("step", [24, 25])
def test_steps_may_end_inside_an_image(model: MediaTestModel, step: int) -> None:
    prompt, images = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20), [TALL, WIDE]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)
        assert encoded(llm) == 2


def test_language_model_only(model: MediaTestModel) -> None:
    model.check_language_model_only("vision_model.", SQUARE)
    model.check_divided()


@pytest.mark.parametrize("size", [(40, 30), (9, 70), (16, 16), (100, 90)])
def test_pictures_become_patches(size: tuple[int, int], tmp_path: Path) -> None:
    bounds = {"shortest_edge": 256, "longest_edge": 4096}
    settings = {"image_processor_type": "VideoLlama3ImageProcessor", "patch_size": 4}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings | {"size": bounds}))
    values = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
    picture = Image.fromarray(values)
    expected = VideoLlama3ImageProcessorPil(patch_size=4, size=bounds)(picture, return_tensors="np")
    patches, grid = open_processor(tmp_path, 10_000)(picture)
    assert list(grid) == expected["image_grid_thw"][0].tolist()
    np.testing.assert_allclose(patches, expected["pixel_values"], atol=1e-6)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        for own, message in (
            (SQUARE[0], "has a grid"),
            ((SQUARE[0], (1, 3, 4)), r"patches must be \[12, 48\], got \[9, 48\]"),
        ):
            model.check_refused(llm, IMAGE, [own], message)
