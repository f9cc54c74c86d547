"""Tiny models of SigLIP, and of SigLIP 2 with images of any size, and their references in
`transformers`: the rows of a prompt are one, that of its text or of its image."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Siglip2Config, Siglip2Model, SiglipConfig, SiglipModel

from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import save

PIXELS = (3, 32, 32)
PLACEHOLDER = 257
"""The token behind the vocabulary."""
LENGTH, PAD = 24, 7
"""Of a padded text."""
PATCHES = 25
"""Places that SigLIP 2 has learned."""
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
}
TEXT = SIZES | {"vocab_size": 257, "max_position_embeddings": LENGTH}
Grid = tuple[int, int, int]


def _saved(model: Any, path: Path) -> Any:
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "probe" in name:
            torch.nn.init.normal_(weight, std=0.3)
    (path / "tokenizer_config.json").write_text(json.dumps({"pad_token": f"t{PAD}"}))
    return save(model, path)


def siglip(path: Path) -> MediaTestModel:
    vision = SIZES | {"image_size": PIXELS[1], "patch_size": 8}
    config = SiglipConfig(text_config=TEXT, vision_config=vision)
    config._attn_implementation = "eager"
    reference = _saved(SiglipModel(config), path)

    def rows(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        with torch.inference_mode():
            if images:
                return reference.get_image_features(torch.tensor(np.stack(images))).pooler_output
            return reference.get_text_features(torch.tensor([ids])).pooler_output

    return MediaTestModel(path, rows)


def siglip2(path: Path) -> MediaTestModel:
    """Images are patches with their grid."""
    vision = SIZES | {"num_patches": PATCHES, "patch_size": 4}
    config = Siglip2Config(text_config=TEXT, vision_config=vision)
    config._attn_implementation = "eager"
    reference = _saved(Siglip2Model(config), path)

    def rows(ids: list[int], images: Sequence[tuple[np.ndarray, Grid]]) -> torch.Tensor:
        with torch.inference_mode():
            if not images:
                return reference.get_text_features(torch.tensor([ids])).pooler_output
            ((patches, grid),) = images
            found = reference.get_image_features(
                torch.tensor(patches)[None],
                pixel_attention_mask=torch.ones(1, len(patches), dtype=torch.long),
                spatial_shapes=torch.tensor([grid[1:]]),
            )
            return found.pooler_output

    return MediaTestModel(path, rows)


def padded(ids: list[int]) -> list[int]:
    """A text as the models read it."""
    return ids + [PAD] * (LENGTH - len(ids))
