"""DeepSeek-OCR 2 through the engine: whole images and their tiles, of another size, give the tokens
of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.deepseek_ocr2 import DeepseekOcr2Model
from transformers import DeepseekOcr2Config, DeepseekOcr2ForConditionalGeneration, PreTrainedModel

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
WHOLE, TILE = (3, 128, 128), (3, 96, 96)
TOKENS, TILE_TOKENS = 256 + 1, 144
_VISION: dict[str, Any] = {
    "sam_config": {
        "hidden_size": 16,
        "output_channels": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": WHOLE[1],
        "patch_size": 2,
        "global_attn_indexes": [1],
        "downsample_channels": [12, 32],
    },
    "encoder_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
_TEXT: dict[str, Any] = TEXT_SIZES | {
    "num_key_value_heads": None,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}


def configuration() -> DeepseekOcr2Config:
    layers = TEXT_SIZES["num_hidden_layers"]
    types = ["dense"] + ["sparse"] * (layers - 1)
    config = DeepseekOcr2Config(
        vision_config=_VISION,
        text_config=_TEXT | {"mlp_layer_types": types},
        image_token_id=PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    return config


def deepseek_ocr2() -> PreTrainedModel:
    model = DeepseekOcr2ForConditionalGeneration(configuration())
    for name, weight in model.named_parameters():
        if "rel_pos" in name or "pos_embed" in name or "query_" in name or "separator" in name:
            torch.nn.init.normal_(weight, std=0.5)
        elif "vision_tower" in name or "projector" in name:
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.1)
    return model


def image(seed: int, shape: tuple[int, ...] = WHOLE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


Pair = tuple[np.ndarray, tuple[int, int, int]]


def tiled(seed: int, rows: int, columns: int) -> Pair:
    tiles = image(seed, (rows * columns, *TILE))
    pixels = np.concatenate([tiles.reshape(-1), image(seed).reshape(-1)])
    return pixels, (1, rows, columns)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("deepseek_ocr2")
    torch.manual_seed(0)
    reference = save(deepseek_ocr2(), path)

    def logits(ids: list[int], images: Sequence[np.ndarray | Pair]) -> torch.Tensor:
        whole, local, counts = [], [], []
        for each in images:
            if isinstance(each, np.ndarray):
                whole.append(each)
                counts.append(0)
                continue
            pixels, grid = each
            counts.append(int(np.prod(grid)))
            size = int(np.prod(WHOLE))
            local.append(pixels[:-size].reshape(-1, *TILE))
            whole.append(pixels[-size:].reshape(WHOLE))
        given: dict[str, Any] = {}
        if images:
            given["pixel_values"] = torch.tensor(np.stack(whole))
            given["num_local_patches"] = counts
        if local:
            given["pixel_values_local"] = torch.tensor(np.concatenate(local))
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **given, use_cache=False).logits[0]

    return MediaTestModel(path, logits)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: MediaTestModel, executor: str) -> None:
    a, b = image(1), tiled(2, 1, 2)
    prompts = [text(1, 3) + IMAGE + text(2, 5), text(3, 4) + IMAGE + text(4, 4), text(5, 30)]
    images: list[list[Any]] = [[a], [b], []]
    with model.llm(executor=executor, max_model_len=700, max_num_batched_tokens=300) as llm:
        outputs = model.generate(llm, prompts, images, logprobs=0)
        counts = (TOKENS, 2 * TILE_TOKENS + TOKENS, 0)
        for output, own, count in zip(outputs, images, counts, strict=True):
            assert output.prompt_token_ids.count(PLACEHOLDER) == count
            model.check(output, own)
        assert encoded(llm) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (image(1)[:, 8:], r"must be \[3, 128, 128\]"),
        ((tiled(1, 1, 2)[0], (1, 1, 3)), r"an image of 1 x 1 x 3 tiles must be \[132096\]"),
        ((tiled(1, 1, 2)[0], (1, 0, 3)), "an image of 1 x 0 x 3 tiles"),
    ],
)
def test_images_that_do_not_fit_are_refused(
    model: MediaTestModel, given: np.ndarray | Pair, message: str
) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match=message):
        model.generate(llm, [IMAGE], [[given]])


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("sam_config", {"image_size": 64}, "has 64 tokens, but there are 144 or 256 queries"),
        ("sam_config", {"downsample_channels": [12]}, "downsample_channels must list two numbers"),
        ("encoder_config", {"num_attention_heads": 3}, "cannot share 32 features"),
        ("encoder_config", {"use_sliding_window": True}, "use_sliding_window must be false"),
    ],
)
def test_unknown_vision_models_are_refused(
    part: str, changes: dict[str, Any], message: str
) -> None:
    config = configuration().to_dict()
    config["vision_config"][part] |= changes
    with pytest.raises(ModelConfigError, match=message):
        DeepseekOcr2Model.from_config(config)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("sam_model.", image(1))
