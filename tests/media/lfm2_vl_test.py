"""LFM2-VL through the engine: images of any size, some of them divided into tiles, have the tokens
of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.render.media.processors import open_processor
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration, PreTrainedModel

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER, START, END, WHOLE, TILE_0 = 3, 4, 5, 6, 200
IMAGE = [PLACEHOLDER]
COLUMNS = 3
CHANNELS = 3 * 4 * 4
WORDS = {START: "<|image_start|>", END: "<|image_end|>", WHOLE: "<|img_thumbnail|>"} | {
    TILE_0 + row * COLUMNS + column: f"<|img_row_{row + 1}_col_{column + 1}|>"
    for row in range(2)
    for column in range(COLUMNS)
}
TILE = 4  # patches in a row
Patches = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, row by row; a quarter as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


def tiled(seed: int, rows: int, height: int, width: int) -> Patches:
    """Rows of `COLUMNS` tiles, and the whole image of height x width patches."""
    shape = (rows * COLUMNS + 1, TILE**2, CHANNELS)
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return values, (rows, height, width)


def parts(image: Patches) -> list[Patches]:
    """What the tower encodes."""
    values, (rows, height, width) = image
    if values.ndim == 2:
        return [image]
    tiles: list[Patches] = [(tile, (1, TILE, TILE)) for tile in values[:-1]]
    return [*tiles, (values[-1][: height * width], (1, height, width))]


# Of more rows and columns than the 5 x 5 learned places, of fewer, and both.
LARGE, WIDE, SMALL = image(1, 6, 8), image(2, 2, 10), image(3, 2, 4)
TILED, TILED_ROWS = tiled(4, 1, 2, 6), tiled(5, 2, 4, 4)
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE,
]
IMAGES = [[LARGE, WIDE], [TILED], [], [TILED_ROWS, SMALL]]


def lfm2_vl(**settings: Any) -> PreTrainedModel:
    config = Lfm2VlConfig(
        text_config=TEXT_SIZES
        | {
            "model_type": "lfm2",
            "layer_types": ["conv", "full_attention"] * (TEXT_SIZES["num_hidden_layers"] // 2),
            "block_multiple_of": 1,
        },
        vision_config={
            "model_type": "siglip2_vision_model",
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "patch_size": 4,
            "num_patches": 25,
            "layer_norm_eps": 1e-3,
        },
        image_token_id=PLACEHOLDER,
        projector_hidden_size=40,
        **settings,
    )
    config._attn_implementation = "eager"
    return Lfm2VlForConditionalGeneration(config)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        media: dict[str, torch.Tensor] = {}
        if items := [part for each in images for part in parts(each)]:
            most = max(len(patches) for patches, _ in items)
            padded = [np.pad(p, ((0, most - len(p)), (0, 0))) for p, _ in items]
            mask = [[i < len(p) for i in range(most)] for p, _ in items]
            media = {
                "pixel_values": torch.tensor(np.stack(padded)),
                "pixel_attention_mask": torch.tensor(mask, dtype=torch.int32),
                "spatial_shapes": torch.tensor([grid[1:] for _, grid in items]),
            }
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **media, use_cache=False).logits[0]

    return MediaTestModel(path, logits, WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("lfm2_vl")
    torch.manual_seed(0)
    return image_model(path, save(lfm2_vl(), path))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 3 + 4 + 7, "each tile is an item"


def test_a_projector_without_norm_and_biases(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = lfm2_vl(
        projector_use_layernorm=False,
        projector_bias=False,
        projector_hidden_act="silu",
        downsample_factor=1,
        tie_word_embeddings=False,
    )
    model = image_model(tmp_path, save(reference, tmp_path))
    with model.llm() as llm:
        (output,) = model.generate(llm, PROMPTS[1:2], [[image(1, 3, 5)]], logprobs=0)
        model.check(output, [image(1, 3, 5)])


def test_steps_may_end_inside_a_tile(model: MediaTestModel) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [TILED, LARGE]
    with model.llm(max_num_batched_tokens=17) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_texts_around_tiles(model: MediaTestModel) -> None:
    tile = IMAGE * 4
    numbered = [token for i in range(COLUMNS) for token in (TILE_0 + i, *tile)]
    with model.llm() as llm:
        for own, around in (
            (SMALL, [START, *IMAGE * 2, END]),
            (TILED, [START, *numbered, WHOLE, *IMAGE * 3, END]),
        ):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            assert output.prompt_token_ids == [20, *around, 21]


def test_files_are_cut_as_the_model_wants(model: MediaTestModel) -> None:
    settings = {
        "image_processor_type": "Lfm2VlImageProcessorFast",
        "encoder_patch_size": 4,
        "min_image_tokens": 1,
        "max_image_tokens": 4,
        "tile_size": 4 * TILE,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    processor = open_processor(model.path, 10**6)
    noise = np.random.default_rng(1).integers(0, 256, (80, 120, 3), np.uint8)
    with model.llm() as llm:
        for size, kinds in (((120, 80), 2 * COLUMNS + 1), ((16, 8), 1)):
            picture = Image.fromarray(noise).resize(size)
            prepared = processor(picture)
            assert isinstance(prepared, tuple) and len(parts(prepared)) == kinds
            (output,) = model.generate(llm, [IMAGE], [[picture]], logprobs=0)
            model.check(output, [prepared])


def test_published_towers_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    published = {
        name.replace("vision_tower.vision_model.", "vision_tower."): tensor
        for name, tensor in tensors.items()
    }
    longer = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in published.items()
    }
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    for named, expected in ((published, "vision_tower.encoder."), (longer, "vision_model.encoder")):
        save_file(named, tmp_path / "model.safetensors")
        built = build(ModelSource.open(tmp_path), BuildOptions())
        assert expected in built.encoders[0].program_text


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        patches, tiles = SMALL[0], TILED[0]
        for own, why in (
            ((patches, (1, 4, 4)), r"patches must be \[16, 48\], got \[8, 48\]"),
            ((patches, (1, 8, 1)), "two multiples of 2"),
            (patches, "an image of this model has a grid"),
            ((tiles, (2, 2, 6)), "an image of 2 rows of tiles"),
            ((tiles, (0, 2, 6)), "an image of 0 rows of tiles"),
            ((tiles, (1, 4, 6)), "no more patches than a tile"),
            ((tiles[:, :15], (1, 2, 6)), "patches of a square tile"),
            ((tiles[:1], (1, 2, 6)), r"got \[1, 16, 48\]"),
            ((tiles[:0], (1, 2, 6)), r"got \[0, 16, 48\]"),
            ((tiles, (1, -2, -6)), "two multiples of 2"),
        ):
            model.check_refused(llm, IMAGE, [own], why)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", SMALL)
