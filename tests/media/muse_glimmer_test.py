"""Muse Glimmer through the engine: images of any size, and videos, in windows of the tower, give
the tokens of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.muse_glimmer_media import MuseGlimmerMediaModel
from transformers import MuseGlimmerConfig, MuseGlimmerForConditionalGeneration

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
VIDEO = 4
WORDS = {
    5: "<|image_start|>",
    6: "<|image_end|>",
    7: "<|vid_start|>",
    8: "<|vid_end|>",
    9: "<|vid_frame_separator|>",
} | {20 + tenth: f"Time: {tenth / 10:.1f}s" for tenth in range(30)}
PATCH = 4
VISION: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 3,
    "intermediate_size": 72,
    "patch_size": PATCH,
    "pos_emb_height": 6,
    "pos_emb_width": 6,
}
"""Windows have 6 x 6 patches."""
Patches = tuple[np.ndarray, tuple[int, int, int]]
Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def configuration() -> MuseGlimmerConfig:
    config = MuseGlimmerConfig(
        text_config=TEXT_SIZES
        | {
            "num_hidden_layers": 4,
            "sliding_window": 32,
            "eos_token_id": None,
            "bos_token_id": None,
            "pad_token_id": None,
        },
        vision_config=VISION,
        out_hidden_size=4 * 48,
        projector_hidden_size=40,
        image_token_id=PLACEHOLDER,
        video_token_id=4,
    )
    config._attn_implementation = "eager"
    return config


def image(seed: int, rows: int, columns: int) -> Patches:
    values = np.random.default_rng(seed).normal(size=(rows * columns, 2 * 3 * PATCH**2))
    return values.astype(np.float32), (1, rows, columns)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path: Path = tmp_path_factory.mktemp("muse_glimmer")
    torch.manual_seed(0)
    reference: Any = MuseGlimmerForConditionalGeneration(configuration())
    for name, weight in reference.named_parameters():
        if "position_embedding_table" in name or "vision_adapter" in name:
            torch.nn.init.normal_(weight, std=0.5)
    reference = save(reference, path)

    def logits(ids: list[int], media: Sequence[Patches | Video]) -> torch.Tensor:
        pixels: dict[str, torch.Tensor] = {}
        for values, grid, length in (
            ("pixel_values", "image_grid_thw", 2),
            ("pixel_values_videos", "video_grid_thw", 3),
        ):
            own = [each for each in media if len(each) == length]
            if own:
                pixels[values] = torch.tensor(np.concatenate([each[0] for each in own]))
                pixels[grid] = torch.tensor([each[1] for each in own])
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits, WORDS)


# One window; parts of several; and two that fit.
SQUARE, LARGE, WIDE = image(1, 6, 6), image(2, 8, 14), image(3, 6, 12)
PROMPTS = [text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2), IMAGE + text(4, 4), text(5, 30)]
IMAGES = [[SQUARE, WIDE], [LARGE], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images_of_several_sizes(model: MediaTestModel, executor: str) -> None:
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            model.check(output, own)
        assert encoded(llm) == 3


def test_videos(model: MediaTestModel) -> None:
    """Each pair of frames is an item, behind the time of its first frame."""
    values = np.random.default_rng(4).normal(size=(2 * 8 * 6, 2 * 3 * PATCH**2))
    times = FrameTimes((0.0, 0.5, 1.0, 1.5), 2.0)
    item: Video = (values.astype(np.float32), (2, 8, 6), times)
    prompt = [100 + token % 150 for token in text(6, 5)] + [VIDEO, 120]
    with model.llm() as llm:
        (output,) = llm.generate([prompt], videos=[[item]], max_tokens=6, temperature=0, logprobs=0)
        tokens = [VIDEO] * 12
        written = [*prompt[:-2], 7, 20, *tokens, 9, 30, *tokens, 8, 120]
        assert output.prompt_token_ids == written
        model.check(output, [item])
        assert encoded(llm) == 2


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("vision_config", {"pos_emb_width": 8}, "they must be equal"),
        ("vision_config", {"pos_emb_height": 7, "pos_emb_width": 7}, "squares of 2 patches"),
        ("vision_config", {"hidden_size": 96}, "out_hidden_size is 192, but 4 patches have 96"),
        ("vision_config", {"layer_types": ["full_attention"]}, "must list 5 layers"),
        ("text_config", {"model_type": "llama"}, "known: muse_glimmer_text"),
    ],
)
def test_unknown_models_are_refused(part: str, changes: dict[str, Any], message: str) -> None:
    config = json.loads(configuration().to_json_string(use_diff=False))
    config[part] |= changes
    with pytest.raises(ModelConfigError, match=message):
        MuseGlimmerMediaModel.from_config(config)


def test_images_that_do_not_fit_are_refused(model: MediaTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match="two multiples of 2"):
        model.generate(llm, [IMAGE], [[image(1, 3, 4)]])


def test_ranks_stages_and_text_alone(model: MediaTestModel) -> None:
    model.check_divided()
    model.check_language_model_only("vision_tower.", SQUARE)
