"""Images in tiles through the engine: the tokens of Command A Vision and Aya Vision are those of
`transformers`, and so are the texts around tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import CohereConfig, PreTrainedModel

from tests.media.media_model import MediaTestModel, encoder_outputs, media_prompts, text
from tests.media.tiny_tiled_models import (
    COHERE_PLACEHOLDER,
    COHERE_TILE,
    COHERE_WORDS,
    aya_vision,
    cohere2_vision,
)
from tests.parity.tiny_models import TEXT_SIZES, save

IMAGE = [COHERE_PLACEHOLDER]
START, END, BEHIND_TILE, WHOLE, TILE_0 = 4, 5, 6, 7, 200
TILE_TOKENS = 4
MAKERS = {"aya_vision": aya_vision, "cohere2_vision": cohere2_vision}


def image(seed: int, tiles: int = 0) -> np.ndarray:
    """Tiles; or without a number of them, pixels."""
    shape = (tiles, *COHERE_TILE) if tiles else COHERE_TILE
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


ONE, FEW, MANY = image(1), image(2, 3), image(3, 5)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    # `transformers` leaves out what its language model does to logits (no logit_scale).
    scale = reference.config.text_config.logit_scale

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        tiles = [each.reshape(-1, *COHERE_TILE) for each in images]
        pixels = torch.tensor(np.concatenate(tiles)) if tiles else None
        with torch.inference_mode():
            found = reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]
        return found * scale

    return MediaTestModel(path, logits, COHERE_WORDS)


@pytest.fixture(scope="module", params=sorted(MAKERS))
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    return image_model(path, save(MAKERS[request.param](), path))


PROMPTS = media_prompts(IMAGE)
IMAGES = [[ONE, FEW], [MANY], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 1 + 3 + 5, "each tile is an item"


@pytest.mark.parametrize("step", [5, 17])
def test_steps_may_end_inside_a_tile(model: MediaTestModel, step: int) -> None:
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20)
    images = [FEW, MANY]
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [images], logprobs=0)
        model.check(output, images)


def test_texts_around_tiles(model: MediaTestModel, request: pytest.FixtureRequest) -> None:
    tokens = IMAGE * TILE_TOKENS
    expected = {
        "aya_vision": (
            [START, WHOLE, *tokens, END],
            [START, TILE_0 + 1, *tokens, TILE_0 + 2, *tokens, WHOLE, *tokens, END],
        ),
        "cohere2_vision": (
            [START, *tokens, BEHIND_TILE, END],
            [START, *[*tokens, BEHIND_TILE] * 3, END],
        ),
    }
    family = request.node.callspec.params["model"]
    with model.llm() as llm:
        for own, around in zip((ONE, FEW), expected[family], strict=True):
            (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[own]])
            assert output.prompt_token_ids == [20, *around, 21]


def test_command_r_with_an_inner_layer_of_the_tower(tmp_path: Path) -> None:
    torch.manual_seed(0)
    command_r = CohereConfig(**TEXT_SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = image_model(tmp_path, save(aya_vision(command_r, layer=-2), tmp_path))
    model.check_all(PROMPTS, IMAGES)


def test_encoders_of_both_executors(model: MediaTestModel) -> None:
    (encoder,) = build(ModelSource.open(model.path), BuildOptions()).encoders
    assert encoder.layout is not None
    parts = encoder.layout(PreparedMedia("image", FEW))
    items = [encoder.features(part) for part in parts if isinstance(part, PreparedMedia)]
    native, expected = encoder_outputs(encoder, items)
    assert len(expected) == sum(item.tokens for item in items) == 12
    np.testing.assert_allclose(native, expected, rtol=0, atol=2e-5)


def test_published_towers_have_other_names(model: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    published = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in tensors.items()
    }
    save_file(published, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert "vision_tower.vision_model.encoder." in built.encoders[0].program_text


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            model.check_refused(llm, IMAGE, images, message)

        refuse(r"must be \[3, 18, 18\], or tiles .* got \[3, 18, 8\]", ONE[..., :8])
        refuse(r"got \[0, 3, 18, 18\]", FEW[:0])
        refuse("an array of tiles, without a grid", (FEW, (1, 1, 2)))
        refuse("image 0 has pixels that are not finite", FEW * np.nan)


def test_ranks_and_stages_of_text(model: MediaTestModel) -> None:
    model.check_divided()
