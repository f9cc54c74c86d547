"""MiniCPM-V 4.6 and MiniCPM-OCR through the engine: images of any size, some of them divided into
slices, have the tokens of `transformers`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.minicpm_v import MiniCpmVModel
from pagemill.render.media.processors import open_processor
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from PIL import Image
from transformers import (
    MiniCPMOcrConfig,
    MiniCPMOcrForConditionalGeneration,
    MiniCPMV4_6Config,
    MiniCPMV4_6ForConditionalGeneration,
    PreTrainedModel,
)

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.media.qwen_vl_models import TEXT_3_5
from tests.parity.tiny_models import save

PLACEHOLDER, START, END, SLICE, SLICE_END, NUMBER, NUMBER_END = range(3, 10)
IMAGE = [PLACEHOLDER]
VIDEO = [2]
NEWLINE, DIGIT_0 = 200, 201
WORDS = {
    START: "<image>",
    END: "</image>",
    SLICE: "<slice>",
    SLICE_END: "</slice>",
    NUMBER: "<image_id>",
    NUMBER_END: "</image_id>",
    NEWLINE: "\n",
} | {DIGIT_0 + digit: str(digit) for digit in range(3)}
PATCH = 4
CHANNELS = 3 * PATCH**2
COLUMNS = 2
VISION: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "patch_size": PATCH,
    "image_size": 5 * PATCH,
    "layer_norm_eps": 1e-3,
}
Patches = tuple[np.ndarray, tuple[int, int, int]]
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, row by row."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


def sliced(seed: int, rows: int, size: tuple[int, int], whole: tuple[int, int]) -> Patches:
    """Rows of `COLUMNS` slices of a size in patches, and the whole image."""
    count, each = whole[0] * whole[1], size[0] * size[1]
    blocks = rows * COLUMNS + -(-count // each)
    values = np.random.default_rng(seed).normal(size=(blocks, *size, CHANNELS))
    values.reshape(-1, CHANNELS)[rows * COLUMNS * each + count :] = 0
    return values.astype(np.float32), (rows, *whole)


def parts(image: Patches) -> list[Patches]:
    """What the tower encodes: the whole image, and its slices."""
    values, (rows, height, width) = image
    if values.ndim == 2:
        return [image]
    size = values.shape[1:3]
    count = rows * COLUMNS
    whole = values[count:].reshape(-1, CHANNELS)[: height * width]
    slices: list[Patches] = [(each.reshape(-1, CHANNELS), (1, *size)) for each in values[:count]]
    return [(whole, (1, height, width)), *slices]


def frames(video: Video) -> list[Patches]:
    values, (count, height, width), _ = video
    return [(each, (1, height, width)) for each in values.reshape(count, height * width, -1)]


# Of more rows and columns than the 5 x 5 learned places, of fewer, and both.
LARGE, WIDE, SMALL = image(1, 8, 12), image(2, 4, 12), image(3, 4, 4)
SLICED, SLICED_ROWS = sliced(4, 1, (8, 4), (4, 8)), sliced(5, 2, (4, 4), (4, 12))
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE,
]
IMAGES = [[LARGE, WIDE], [SLICED], [], [SLICED_ROWS, SMALL]]


def minicpm_v(vision: dict[str, Any] | None = None, **settings: Any) -> PreTrainedModel:
    config = MiniCPMV4_6Config(
        text_config=TEXT_3_5 | {"model_type": "qwen3_5_text"},
        vision_config=VISION | (vision or {}),
        image_token_id=PLACEHOLDER,
        video_token_id=VIDEO[0],
        **({"insert_layer_id": 1} | settings),
    )
    config._attn_implementation = "eager"
    return MiniCPMV4_6ForConditionalGeneration(config)


def minicpm_ocr() -> PreTrainedModel:
    config = MiniCPMOcrConfig(
        text_config=TEXT_3_5 | {"model_type": "qwen3_5_text"},
        vision_config=VISION,
        image_token_id=PLACEHOLDER,
        video_token_id=VIDEO[0],
    )
    config._attn_implementation = "eager"
    return MiniCPMOcrForConditionalGeneration(config)


MAKERS = {"minicpm_v": minicpm_v, "minicpm_ocr": minicpm_ocr}


def packed(patches: Sequence[Patches]) -> torch.Tensor:
    """Patches side by side, [1, 3, patch, patches * patch]."""
    values = np.concatenate([each for each, _ in patches]).reshape(-1, 3, PATCH, PATCH)
    return torch.tensor(values.transpose(1, 2, 0, 3).reshape(1, 3, PATCH, -1))


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], media_of_prompt: Sequence[Patches | Video]) -> torch.Tensor:
        media: dict[str, torch.Tensor] = {}
        images, videos = [list[Patches](), list[Patches]()]
        for each in media_of_prompt:
            if len(each) == 3:
                videos += frames(each)
            else:
                images += parts(each)
        for items, kind in ((images, ""), (videos, "_videos")):
            if items:
                sizes = torch.tensor([grid[1:] for _, grid in items], dtype=torch.int32)
                media |= {f"pixel_values{kind}": packed(items), f"target_sizes{kind}": sizes}
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **media, use_cache=False).logits[0]

    return MediaTestModel(path, logits, WORDS)


@pytest.fixture(scope="module", params=sorted(MAKERS))
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    return image_model(path, save(MAKERS[request.param](), path))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 3 + 3 + 5, "each slice is an item"


@pytest.mark.parametrize("layer", [0, 3])
def test_merged_behind_the_first_and_the_last_layer(tmp_path: Path, layer: int) -> None:
    torch.manual_seed(0)
    model = image_model(tmp_path, save(minicpm_v(insert_layer_id=layer), tmp_path))
    model.check_all(PROMPTS, IMAGES)


def test_steps_may_end_inside_a_slice(model: MediaTestModel) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [SLICED, LARGE]
    with model.llm(max_num_batched_tokens=25) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_texts_around_slices_and_numbers_of_images(model: MediaTestModel) -> None:
    tokens = 16 if "V4_6" in (model.path / "config.json").read_text() else 4

    def around(number: int, whole: int, slices: str, each: int) -> list[int]:
        parts = [NUMBER, DIGIT_0 + number, NUMBER_END, START, *IMAGE * (whole // tokens), END]
        for row in slices.split():
            parts += [NEWLINE] if len(parts) > 6 + whole // tokens - 1 and row[0] == "n" else []
            parts += [SLICE, *IMAGE * (each // tokens), SLICE_END] * COLUMNS
        return parts

    prompt = [20, *IMAGE, 21, *IMAGE, 22]
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [[SLICED_ROWS, SMALL]])
        first, second = around(0, 48, "r nr", 16), around(1, 16, "", 0)
        assert output.prompt_token_ids == [20, *first, 21, *second, 22]


def video(seed: int, frames: int, height: int, width: int) -> Video:
    values, _ = image(seed, frames * height, width)
    return values, (frames, height, width), FrameTimes(tuple(map(float, range(frames))), 1.0)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos(model: MediaTestModel, executor: str) -> None:
    videos = [[video(1, 3, 4, 8), video(2, 1, 8, 8)], [video(3, 5, 8, 4)]]
    prompts = [text(1, 3) + VIDEO + text(2, 5) + VIDEO, VIDEO + text(4, 4)]
    model = copy(model)
    model.argument = "videos"
    assert model.check_all(prompts, videos, executor=executor) == 4 + 5, "each frame is an item"


def test_texts_around_frames(model: MediaTestModel) -> None:
    tokens = 2 if "V4_6" in (model.path / "config.json").read_text() else 8
    frame = [START, *VIDEO * tokens, END]
    model = copy(model)
    model.argument = "videos"
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *VIDEO, 21]], [[video(1, 3, 4, 8)]])
        first = [NUMBER, DIGIT_0, NUMBER_END, *frame * 3]
        assert output.prompt_token_ids == [20, *first, 21]


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        patches, slices = SMALL[0], SLICED[0]
        for own, why in (
            ((patches, (1, 4, 8)), r"patches must be \[32, 48\], got \[16, 48\]"),
            ((patches, (1, 16, 1)), "two multiples of 2"),
            (patches, "an image of this model has a grid"),
            (slices, "an image of this model is patches"),
            ((slices[0], (1, 4, 8)), "an image of this model is patches"),
            ((slices, (2, 16, 16)), "an image of 2 rows of slices of 8 x 4 patches"),
            ((slices, (0, 4, 8)), "an image of 0 rows of slices"),
            ((slices, (1, -4, -8)), "an image of 1 rows of slices"),
            ((slices, (1, 0, 8)), "an image of 1 rows of slices"),
            ((slices[:, :0], (1, 4, 8)), "an image of this model is patches"),
        ):
            model.check_refused(llm, IMAGE, [own], why)


def test_a_grid_that_cannot_be_merged_twice_is_refused(tmp_path: Path) -> None:
    model = image_model(tmp_path, save(minicpm_v(), tmp_path))
    with model.llm() as llm, pytest.raises(EngineError, match=r"multiples of 4, got \[1, 2, 8\]"):
        model.generate(llm, [IMAGE], [[image(1, 2, 8)]])


def test_later_layers_compute_merged_rows_alone(tmp_path: Path) -> None:
    save(minicpm_v(), tmp_path)
    program = build(ModelSource.open(tmp_path), BuildOptions()).encoders[0].program_text
    results = re.findall(r"linear .*mlp\.fc1\.bias -> (\w+)", program)
    shapes = [re.findall(rf"^value {name} .*", program, re.M) for name in results]
    assert ["media_rows" in str(shape) for shape in shapes] == [False, False, True, True]


def test_files_are_cut_as_the_model_wants(model: MediaTestModel) -> None:
    is_ocr = "Ocr" in (model.path / "config.json").read_text()
    settings = {
        "image_processor_type": f"MiniCPM{'Ocr' if is_ocr else 'V4_6'}ImageProcessor",
        "scale_resolution": 4 * PATCH,
        "patch_size": PATCH,
        "max_slice_nums": COLUMNS,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    processor = open_processor(model.path, 10**6)
    noise = np.random.default_rng(1).integers(0, 256, (40, 80, 3), np.uint8)
    with model.llm() as llm:
        for size, count in (((80, 40), COLUMNS + 1), ((16, 8), 1)):
            picture = Image.fromarray(noise).resize(size)
            prepared = processor(picture)
            assert isinstance(prepared, tuple) and len(parts(prepared)) == count
            (output,) = model.generate(llm, [IMAGE], [[picture]], logprobs=0)
            model.check(output, [prepared])


def test_settings_that_are_not_known_are_refused() -> None:
    config = minicpm_v().config.to_dict()
    for settings, why in (
        ({"downsample_mode": "8x"}, "known: 16x, 4x"),
        ({"merger_times": 2}, "merger_times is 2"),
        ({"merge_kernel_size": [2, 3]}, "must be that of a square"),
        ({"merge_kernel_size": [3, 3]}, "must be 2 x 2"),
        ({"insert_layer_id": 4}, "insert_layer_id is 4, of 4 layers"),
        ({"insert_layer_id": -1}, "insert_layer_id is -1"),
        ({"insert_layer_id": "2"}, "it must be a layer"),
    ):
        with pytest.raises(ModelConfigError, match=why):
            MiniCpmVModel.from_config(config | settings)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", SMALL)
