"""Pages of Granite Docling in tiles through the engine: tokens, and texts around tiles, are those
of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.granite_docling import GraniteDoclingModel
from pagemill.render.media.processors import open_processor
from pagemill.weights.source import ModelSource
from PIL import Image
from tokenizers import Tokenizer
from transformers import (
    GraniteDoclingConfig,
    GraniteDoclingForConditionalGeneration,
    PreTrainedModel,
)
from transformers.models.granite_docling.processing_granite_docling import GraniteDoclingProcessor

from tests.families.family import MULTIPLIERS
from tests.media.media_model import MediaTestModel, media_prompts
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
SIDE, TILE_TOKENS = 16, 4  # of 4 x 4 patches
WORDS = {
    PLACEHOLDER: "<image>",
    4: "<fake_token_around_image>",
    5: "<global-img>",
    6: "\n",
    7: "\n\n",
    **{
        200 + 3 * row + column: f"<row_{row + 1}_col_{column + 1}>"
        for row in range(2)
        for column in range(3)
    },
}
Tiles = np.ndarray | tuple[np.ndarray, tuple[int, int, int]]


def granite_docling(**settings: Any) -> PreTrainedModel:
    """Results of the first and the second of three layers of the tower are added in the text."""
    vision: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "image_size": SIDE,
        "patch_size": 4,
        "scale_factor": 2,
        "out_hidden_size": TEXT_SIZES["hidden_size"],
        "deepstack_visual_indexes": [0, 1],
    }
    config = GraniteDoclingConfig(
        text_config=TEXT_SIZES
        | MULTIPLIERS
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        vision_config=vision,
        image_token_id=PLACEHOLDER,
        pad_token_id=0,
        **settings,
    )
    config._attn_implementation = "eager"
    return GraniteDoclingForConditionalGeneration(config)


def image(seed: int, rows: int = 0, columns: int = 0) -> Tiles:
    """Rows and columns of tiles and the whole page; without rows, that alone."""
    tiles = np.random.default_rng(seed).normal(size=(rows * columns + 1, 3, SIDE, SIDE))
    tiles = tiles.astype(np.float32)
    return (tiles, (1, rows, columns)) if rows else tiles[0]


ONE, WIDE, TALL = image(1), image(2, 1, 3), image(3, 2, 2)
PROMPTS = media_prompts(IMAGE)
IMAGES = [[ONE, WIDE], [TALL], []]


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        media: dict[str, torch.Tensor] = {}
        if tiles := [each[0] if isinstance(each, tuple) else each[None] for each in images]:
            media["pixel_values"] = torch.tensor(np.concatenate(tiles)[None])
            shape = media["pixel_values"].shape[:2]
            media["pixel_attention_mask"] = torch.ones(shape, dtype=torch.bool)
        with torch.inference_mode():
            return reference(torch.tensor([ids]), use_cache=False, **media).logits[0]

    return MediaTestModel(path, logits, WORDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("granite_docling")
    torch.manual_seed(0)
    return image_model(path, save(granite_docling(density_router_hidden_size=8), path))


@pytest.mark.parametrize(
    "options", [{}, {"executor": "torch"}, {"max_num_batched_tokens": 10, "max_num_seqs": 2}]
)
def test_tokens_of_pages(model: MediaTestModel, options: dict[str, Any]) -> None:
    assert model.check_all(PROMPTS, IMAGES, **options) == 1 + 4 + 5, "each tile is an item"


def test_texts_around_tiles(model: MediaTestModel) -> None:
    stub = SimpleNamespace(
        fake_image_token="<fake_token_around_image>",
        image_token="<image>",
        global_image_tag="<global-img>",
        image_seq_len=TILE_TOKENS,
    )
    tokenizer = Tokenizer.from_file(str(model.path / "tokenizer.json"))
    with model.llm() as llm:
        for own, grid in ((ONE, (1, 1)), (WIDE, (1, 3)), (TALL, (2, 2))):
            grids = {"rows": [[grid[0]]], "cols": [[grid[1]]]}
            written = GraniteDoclingProcessor.replace_image_token(stub, grids, 0)
            (output,) = model.generate(llm, [[30, *IMAGE, 31]], [[own]])
            assert output.prompt_token_ids == [30, *tokenizer.encode(written).ids, 31]


def test_pages_are_cut_into_tiles(model: MediaTestModel) -> None:
    settings = {
        "image_processor_type": "GraniteDoclingImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "max_patches": 6,
    }
    (model.path / "preprocessor_config.json").write_text(json.dumps(settings))
    processor = open_processor(model.path, 10**6)
    noise = np.random.default_rng(1).integers(0, 256, (40, 40, 3), np.uint8)
    with model.llm() as llm:
        for size, grid in (((40, 15), (1, 1, 3)), ((12, 12), None)):
            picture = Image.fromarray(noise).resize(size)
            prepared = processor(picture)
            assert (prepared[1] if isinstance(prepared, tuple) else None) == grid
            (output,) = model.generate(llm, [IMAGE], [[picture]], logprobs=0)
            model.check(output, [prepared])


def test_configurations_that_are_refused(model: MediaTestModel) -> None:
    config = ModelSource.open(model.path).config
    for layers, message in (
        ([0, 3], "list layers of 3"),
        ([1, 0], "ascending order"),
        ("all", "at most 7 layers"),
    ):
        vision = config["vision_config"] | {"deepstack_visual_indexes": layers}
        with pytest.raises(ModelConfigError, match=message):
            GraniteDoclingModel.from_config({**config, "vision_config": vision})
    wide = config["vision_config"] | {"image_size": 1040, "patch_size": 8}
    with pytest.raises(ModelConfigError, match="65 squares of patches in a row; at most 64"):
        GraniteDoclingModel.from_config({**config, "vision_config": wide})
    narrow = config["text_config"] | {"num_hidden_layers": 1}
    with pytest.raises(ModelConfigError, match="the language model has 1 layers"):
        GraniteDoclingModel.from_config({**config, "text_config": narrow})


def test_text_alone_ranks_and_stages(model: MediaTestModel) -> None:
    model.check_language_model_only("vision_model", ONE)
    model.check_divided()
