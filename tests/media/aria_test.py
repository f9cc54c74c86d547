"""Aria through the engine: images of any shape, whose longer side says how many queries they have,
have the tokens of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.aria import AriaModel
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AriaConfig, AriaForConditionalGeneration, PreTrainedModel

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
PATCH = 4
CHANNELS = 3 * PATCH**2
QUERIES = {16: 5, 64: 18}  # by patches of a square
Patches = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, row by row."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


SQUARE, TALL, WIDE, LARGE = image(1, 4, 4), image(2, 4, 1), image(3, 5, 8), image(4, 8, 8)
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE,
]
IMAGES = [[LARGE, TALL], [SQUARE], [], [WIDE, LARGE]]


def aria(**settings: Any) -> PreTrainedModel:
    text_config = TEXT_SIZES | {
        "model_type": "aria_text",
        "moe_num_experts": 5,
        "moe_topk": 2,
        "moe_num_shared_experts": 2,
    }
    config = AriaConfig(
        text_config=text_config,
        vision_config={
            "model_type": "idefics3_vision",
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "patch_size": PATCH,
            "image_size": 6 * PATCH,
            "layer_norm_eps": 1e-3,
        },
        projector_patch_to_query_dict=QUERIES,
        image_token_index=PLACEHOLDER,
        **settings,
    )
    config._attn_implementation = "eager"
    return AriaForConditionalGeneration(config)


def padded(patches: Patches) -> tuple[torch.Tensor, torch.Tensor]:
    """A square [1, 3, side, side] with the image at the upper left, and a mask of it."""
    values, (_, height, width) = patches
    side = max(height, width) * PATCH
    cut = values.reshape(height, width, 3, PATCH, PATCH).transpose(2, 0, 3, 1, 4)
    pixels, mask = torch.ones(1, 3, side, side), torch.zeros(1, side, side, dtype=torch.bool)
    whole = torch.tensor(cut.reshape(3, height * PATCH, -1))
    pixels[0, :, : height * PATCH, : width * PATCH] = whole
    # One pixel of a patch is enough.
    mask[0, : (height - 1) * PATCH + 1, : (width - 1) * PATCH + 1] = True
    return pixels, mask


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        row = torch.tensor([ids])
        with torch.inference_mode():
            embeddings = reference.get_input_embeddings()(row)
            layer = reference.config.vision_feature_layer
            found = [
                reference.model.get_image_features(
                    pixel_values=pixels, pixel_mask=mask, vision_feature_layer=layer
                ).pooler_output[0]
                for pixels, mask in map(padded, images)
            ]
            # Images of one prompt may have several sizes.
            if found:
                embeddings[row == PLACEHOLDER] = torch.cat(found)
            return reference(inputs_embeds=embeddings, use_cache=False).logits[0]

    return MediaTestModel(path, logits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("aria")
    torch.manual_seed(0)
    return image_model(path, save(aria(), path))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 4


def test_an_earlier_layer_of_the_tower(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = image_model(tmp_path, save(aria(vision_feature_layer=-2), tmp_path))
    with model.llm() as llm:
        (output,) = model.generate(llm, PROMPTS[1:2], [[SQUARE]], logprobs=0)
        model.check(output, [SQUARE])


def test_steps_may_end_inside_an_image(model: MediaTestModel) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [WIDE, LARGE]
    with model.llm(max_num_batched_tokens=17) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_the_longer_side_says_how_many_tokens(model: MediaTestModel) -> None:
    with model.llm() as llm:
        for own, count in ((TALL, 5), (SQUARE, 5), (WIDE, 18)):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            assert output.prompt_token_ids == [20, *IMAGE * count, 21]


def _newer(name: str) -> str:
    name = name.replace("experts.fc1.weight", "experts.gate_up_proj")
    return name.replace("experts.fc2.weight", "experts.down_proj")


def test_names_of_published_checkpoints(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    published = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in tensors.items()
    }
    newer = {_newer(name): tensor for name, tensor in tensors.items()}
    assert any("experts.down_proj" in name for name in newer)
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    for named in (published, newer):
        save_file(named, tmp_path / "model.safetensors")
        build(ModelSource.open(tmp_path), BuildOptions())


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        for own, why in (
            (image(1, 3, 5), "5 patches along its longer side; it must be one of 4, 8"),
            ((SQUARE[0], (1, 4, 8)), r"patches must be \[32, 48\], got \[16, 48\]"),
            (SQUARE[0], "an image of this model has a grid"),
        ):
            model.check_refused(llm, IMAGE, [own], why)


@pytest.mark.parametrize(
    "counts",
    [{}, [], {"16": 0}, {"15": 4}, {"16": True}, {"x": 4}, {"0": 4}, {"-16": 4}, {"9" * 99: 4}],
)
def test_numbers_of_queries_that_are_refused(counts: Any) -> None:
    config = aria().config.to_dict() | {"projector_patch_to_query_dict": counts}
    with pytest.raises(ModelConfigError, match="numbers of queries by numbers of patches"):
        AriaModel.from_config(config)


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", SQUARE)
