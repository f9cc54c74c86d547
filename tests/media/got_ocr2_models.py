"""A tiny GOT-OCR2 for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    GotOcr2Config,
    GotOcr2ForConditionalGeneration,
    PreTrainedModel,
    Qwen2Config,
)

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
SHAPE = (3, 32, 32)
TOKENS = 4  # of an image, of 8 x 8 patches
VISION: dict[str, Any] = {
    "hidden_size": 48,
    "output_channels": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": SHAPE[1],
    "patch_size": 4,
    "mlp_dim": 72,
    "window_size": 3,
    "global_attn_indexes": [1],
}


def got_ocr2(**vision: Any) -> PreTrainedModel:
    config = GotOcr2Config(
        vision_config=VISION | vision,
        text_config=Qwen2Config(**TEXT_SIZES),
        image_token_index=PLACEHOLDER,
    )
    config._attn_implementation = "eager"
    model = GotOcr2ForConditionalGeneration(config)
    # Zeros in a new model.
    for name, weight in model.named_parameters():
        if "rel_pos" in name or "pos_embed" in name:
            torch.nn.init.normal_(weight, std=0.5)
        elif "vision_tower" in name or "projector" in name:
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.2)
    return model


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def image_model(path: Path, made: PreTrainedModel) -> MediaTestModel:
    reference = save(made, path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        tiles = [each if each.ndim == 4 else each[None] for each in images]
        pixels = torch.tensor(np.concatenate(tiles)) if images else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    return MediaTestModel(path, logits)
