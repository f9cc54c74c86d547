"""Granite 4 Vision through the engine: results of several layers of the tower, by projectors of
their own, are added in front of layers of the text; tokens are those of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.granite4_vision import Granite4VisionModel
from transformers import (
    Granite4VisionConfig,
    Granite4VisionForConditionalGeneration,
    PreTrainedModel,
)
from transformers.models.granite4_vision.processing_granite4_vision import Granite4VisionProcessor

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
TILE = (3, 32, 32)
"""8 x 8 patches in 2 x 2 windows, and 16 tokens."""
SIZES = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]
_VISION: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 128,
    "intermediate_size": 72,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "image_size": TILE[1],
    "patch_size": 4,
    "vision_use_head": False,
}
Tiles = tuple[np.ndarray, tuple[int, int, int]]


def configuration(**changes: Any) -> Granite4VisionConfig:
    whole: dict[str, Any] = {
        "text_config": TEXT_SIZES
        | {
            "model_type": "granite4_vision_text",
            "num_hidden_layers": 6,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.0,
        },
        "vision_config": _VISION,
        "qformer_config": {
            "model_type": "blip_2_qformer",
            "num_hidden_layers": 2,
            "intermediate_size": 40,
            "cross_attention_frequency": 2,
            "use_qformer_text_input": False,
        },
        "image_token_index": PLACEHOLDER,
        "image_grid_pinpoints": SIZES,
        "vision_feature_select_strategy": "full",
        "downsample_rate": "2/4",
        "deepstack_layer_map": [[-3, 4], [-1, 0]],
        "spatial_vision_layer": -2,
        "spatial_target_layers": [1, 2, 3, 5],
    }
    config = Granite4VisionConfig(**whole | changes)
    config._attn_implementation = "eager"
    return config


def written() -> dict[str, Any]:
    """As in a config.json."""
    return json.loads(configuration().to_json_string(use_diff=False))


def granite4_vision(**changes: Any) -> PreTrainedModel:
    model = Granite4VisionForConditionalGeneration(configuration(**changes))
    for name, weight in model.named_parameters():
        if "projectors" in name or "newline" in name:
            torch.nn.init.normal_(weight, mean=float("orm.weight" in name), std=0.3)
    return model


def image(seed: int, tiles: int, height: int, width: int) -> Tiles:
    """So many tiles and the whole image of an image that had this size."""
    pixels = np.random.default_rng(seed).normal(size=(1 + tiles, *TILE)).astype(np.float32)
    return pixels, (1, height, width)


# In grids of 1 x 2, 2 x 1 and 2 x 2 tiles; with margins at no, both, or the other sides.
WIDE, TALL, SQUARE = image(1, 2, 32, 64), image(2, 2, 60, 18), image(3, 4, 120, 82)
PROMPTS = [
    text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
    IMAGE + text(4, 4),
    text(5, 30),
]
IMAGES = [[WIDE, TALL], [SQUARE], []]


def make(path: Path, **changes: Any) -> MediaTestModel:
    torch.manual_seed(0)
    reference = save(granite4_vision(**changes), path)

    def logits(ids: list[int], images: Sequence[Tiles]) -> torch.Tensor:
        most = max((len(tiles) for tiles, _ in images), default=0)
        padded = [np.pad(t, [(0, most - len(t))] + [(0, 0)] * 3) for t, _ in images]
        with torch.inference_mode():
            return reference(
                torch.tensor([ids]),
                pixel_values=torch.tensor(np.stack(padded)) if images else None,
                image_sizes=torch.tensor([size[1:] for _, size in images]) if images else None,
                vision_feature_select_strategy="full",
                use_cache=False,
            ).logits[0]

    return MediaTestModel(path, logits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return make(tmp_path_factory.mktemp("granite4_vision"))


def check(model: MediaTestModel, **options: Any) -> None:
    """All prompts through the engine."""
    with model.llm(**options) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            model.check(output, own)
        assert encoded(llm) == 3, "an image is an item"


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    check(model, executor=executor)


def test_no_layer_of_the_tower_is_read_in_front_of_all_layers(tmp_path: Path) -> None:
    check(make(tmp_path, deepstack_layer_map=[[0, 4]]))


def test_numbers_of_tokens_are_those_of_the_processor() -> None:
    made = Granite4VisionModel.from_config(written())
    processor = Granite4VisionProcessor.__new__(Granite4VisionProcessor)
    processor.patch_size, processor.downsample_rate = 4, "2/4"
    processor.num_additional_image_tokens = 0
    processor.image_processor = type("Sizes", (), {"image_grid_pinpoints": SIZES})
    for _, (_, height, width) in (WIDE, TALL, SQUARE):
        expected = processor._get_number_of_features(height, width, *TILE[1:])
        tiles = {32: 2, 60: 2, 120: 4}[height]
        media = PreparedMedia("image", *image(1, tiles, height, width))
        assert made.features(media).tokens == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"downsample_rate": "1/4"}, "squares of 2 x 2"),
        ({"downsample_rate": "3/6"}, "no whole windows of 6"),
        ({"downsample_rate": None}, "squares of 2 x 2"),
        ({"deepstack_layer_map": [[-1, 2]]}, "must list 1 to 8 pairs"),
        ({"deepstack_layer_map": []}, "must list 1 to 8 pairs"),
        ({"deepstack_layer_map": [[-9, 4]]}, "the tower has 4 layers, and none is -9"),
        ({"spatial_target_layers": [1, 2, 3, 9]}, "but the language model has 6"),
        ({"vision_config": {"model_type": "clip_vision_model"}}, "known: siglip_vision_model"),
        (
            {"vision_config": {**written()["vision_config"], "image_size": 512}}
            | {"downsample_rate": "16/32", "image_grid_pinpoints": [[512, 512]]},
            "16384 patches of an image, in windows of 1024, are too many",
        ),
        ({"vision_feature_select_strategy": "default"}, "it must be 'full'"),
    ],
)
def test_unknown_models_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        Granite4VisionModel.from_config(written() | changes)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match="18 x 60 pixels must be"):
        model.generate(llm, [IMAGE], [[(TALL[0][:2], TALL[1])]])


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", WIDE)
