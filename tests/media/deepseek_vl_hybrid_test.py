"""DeepSeek-VL with two towers through the engine: SAM's rows, interpolated, give as many vectors
as SigLIP has patches, and the tokens of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.deepseek_vl_hybrid import DeepseekVlHybridModel
from transformers import (
    DeepseekVLHybridConfig,
    DeepseekVLHybridForConditionalGeneration,
    LlamaConfig,
    PreTrainedModel,
    SamVisionConfig,
)

from tests.media.media_model import MediaTestModel, encoded, media_prompts
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
SMALL, LARGE = (3, 24, 24), (3, 32, 32)
TOKENS = 9  # of 3 x 3 patches, and of 8 x 8 of SAM, which are 8 of the first 8 tokens each
_VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": SMALL[1],
    "patch_size": 8,
}
_SAM = {
    "hidden_size": 32,
    "output_channels": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": LARGE[1],
    "patch_size": 4,
    "window_size": 3,
    "global_attn_indexes": [1],
}


def configuration() -> DeepseekVLHybridConfig:
    config = DeepseekVLHybridConfig(
        vision_config=_VISION,
        high_res_vision_config=SamVisionConfig(**_SAM),
        text_config=LlamaConfig(**TEXT_SIZES),
        image_token_id=PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    return config


def hybrid() -> PreTrainedModel:
    model = DeepseekVLHybridForConditionalGeneration(configuration())
    for name, weight in model.named_parameters():
        if "rel_pos" in name or "pos_embed" in name or "alpha" in name:
            torch.nn.init.normal_(weight, std=0.5)
        elif "high_res" in name or "aligner" in name:
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.1)
    return model


def image(seed: int) -> np.ndarray:
    size = np.prod(SMALL) + np.prod(LARGE)
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("deepseek_vl_hybrid")
    torch.manual_seed(0)
    reference = save(hybrid(), path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        given: dict[str, Any] = {}
        if images:
            both = [np.split(each, [int(np.prod(SMALL))]) for each in images]
            for name, shape, index in (
                ("pixel_values", SMALL, 0),
                ("high_res_pixel_values", LARGE, 1),
            ):
                pixels = np.stack([each[index].reshape(shape) for each in both])
                given[name] = torch.tensor(pixels)
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **given, use_cache=False).logits[0]

    return MediaTestModel(path, logits)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: MediaTestModel, executor: str) -> None:
    a, b = image(1), image(2)
    prompts = media_prompts(IMAGE)
    images = [[a, b], [b], []]
    with model.llm(executor=executor, max_num_batched_tokens=24) as llm:
        outputs = model.generate(llm, prompts, images, logprobs=0)
        for output, own in zip(outputs, images, strict=True):
            assert output.prompt_token_ids.count(PLACEHOLDER) == TOKENS * len(own)
            model.check(output, own)
        assert encoded(llm) == 2, "equal images are encoded once"


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match=r"must be \[4800\], pixels"):
        model.generate(llm, [IMAGE], [[image(1)[8:]]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "siglip_vision_model"}, "a large vision tower of type"),
        ({"global_attn_indexes": []}, "global_attn_indexes must list a layer"),
    ],
)
def test_unknown_towers_are_refused(changes: dict[str, Any], message: str) -> None:
    config = configuration().to_dict()
    config["high_res_vision_config"] |= changes
    with pytest.raises(ModelConfigError, match=message):
        DeepseekVlHybridModel.from_config(config)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("high_res_vision_model.", image(1))
