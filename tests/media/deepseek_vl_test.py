"""Images of one size through the engine: the tokens of DeepSeek-VL and Janus are those of
`transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from transformers import (
    DeepseekVLConfig,
    DeepseekVLForConditionalGeneration,
    JanusConfig,
    JanusForConditionalGeneration,
    LlamaConfig,
    PreTrainedModel,
)

from tests.media.media_model import MediaTestModel, encoded, media_prompts
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER, START, END = 3, 4, 5
IMAGE = [PLACEHOLDER]
SHAPE = (3, 24, 24)
TOKENS = 9  # of an image
_WORDS = {START: "<begin_of_image>", END: "<end_of_image>"}
_VISION: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": SHAPE[1],
    "patch_size": 8,
}


def deepseek_vl() -> PreTrainedModel:
    vision = _VISION | {"model_type": "siglip_vision_model", "intermediate_size": 72}
    config = DeepseekVLConfig(
        vision_config=vision, text_config=LlamaConfig(**TEXT_SIZES), image_token_id=PLACEHOLDER
    )
    config._attn_implementation = "eager"
    return DeepseekVLForConditionalGeneration(config)


def janus() -> PreTrainedModel:
    """A projector of three layers; the parts that generate images are small."""
    config = JanusConfig(
        vision_config=_VISION | {"mlp_ratio": 2.0, "depth": 3, "projection_dim": 96},
        text_config=LlamaConfig(**TEXT_SIZES),
        vq_config={
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "num_embeddings": 16,
            "embed_dim": 8,
            "latent_channels": 16,
            "num_patches": 4,
            "image_token_embed_dim": 16,
            "projection_dim": 16,
        },
        image_token_id=PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    return JanusForConditionalGeneration(config)


FAMILIES = {"deepseek_vl": deepseek_vl, "janus": janus}


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, _WORDS)


@pytest.fixture(scope="module", params=FAMILIES)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    return image_model(path, save(FAMILIES[request.param](), path))


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


def test_an_image_of_janus_has_tokens_around_it(tmp_path: Path) -> None:
    model = image_model(tmp_path, save(janus(), tmp_path))
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[image(1)]])
    assert output.prompt_token_ids == [20, START, *IMAGE * TOKENS, END, 21]


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match=r"must be \[3, 24, 24\]"):
        model.generate(llm, [IMAGE], [[image(1)[:, 8:]]])


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_model.", image(1))
