"""Images of any size through the engine: the tokens of PaddleOCR-VL are those of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration, PreTrainedModel

from tests.media.media_model import MediaTestModel, media_prompts, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
Patches = tuple[np.ndarray, tuple[int, int, int]]


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches, row by row; a quarter as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, 3, 4, 4))
    return values.astype(np.float32), (1, height, width)


# Of more rows and columns than the 6 x 6 learned places, of fewer, and of as many.
LARGE, WIDE, SMALL, SQUARE = image(1, 8, 14), image(2, 4, 10), image(3, 2, 2), image(4, 6, 6)
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 7) + IMAGE + text(7, 1) + IMAGE,
]
IMAGES = [[SQUARE, WIDE], [LARGE], [], [SMALL, WIDE]]


def paddleocr_vl(*, tied: bool = False) -> PreTrainedModel:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    text_config = TEXT_SIZES | {"head_dim": 16, "rope_parameters": rope}
    config = PaddleOCRVLConfig(
        text_config=text_config | {"tie_word_embeddings": tied},
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "image_size": 25,
            "patch_size": 4,
        },
        image_token_id=PLACEHOLDER,
        video_token_id=4,
        vision_start_token_id=5,
        vision_end_token_id=6,
        tie_word_embeddings=tied,
    )
    config._attn_implementation = "eager"
    return PaddleOCRVLForConditionalGeneration(config)


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        row = torch.tensor([ids])
        # It keeps the position offset of the previous call.
        reference.model.rope_deltas = None
        with torch.inference_mode():
            return reference(
                row,
                pixel_values=torch.tensor(np.concatenate([p for p, _ in images]))
                if images
                else None,
                image_grid_thw=torch.tensor([g for _, g in images]) if images else None,
                mm_token_type_ids=(row == PLACEHOLDER).int(),
                use_cache=False,
            ).logits[0]

    return MediaTestModel(path, logits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("paddleocr_vl")
    torch.manual_seed(0)
    return image_model(path, save(paddleocr_vl(), path))


def check(model: MediaTestModel, executor: str = "native") -> None:
    assert model.check_all(PROMPTS, IMAGES, executor=executor) == 4, "equal images are encoded once"


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    check(model, executor)


def test_published_configurations_have_the_text_among_their_keys(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = paddleocr_vl(tied=True)
    model = image_model(tmp_path, save(reference, tmp_path))
    file = tmp_path / "config.json"
    saved = json.loads(file.read_text())
    flat = saved.pop("text_config") | saved
    rope = flat.pop("rope_parameters")
    flat |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    flat["vision_config"]["model_type"] = "paddleocr_vl"
    file.write_text(json.dumps(flat))
    check(model)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm:
        patches, _ = SQUARE
        for grid, why in (
            ((1, 6, 4), r"patches must be \[24, 48\], got \[36, 48\]"),
            ((1, 4, 9), "two multiples of 2"),
            ((1, -6, -6), "two multiples of 2"),
            ((2, 6, 6), "must be 1"),
        ):
            with pytest.raises(EngineError, match=why):
                model.generate(llm, [IMAGE], [[(patches, grid)]])
        with pytest.raises(EngineError, match="an image of this model has a grid"):
            model.generate(llm, [IMAGE], [[patches]])


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("visual.", SQUARE)
