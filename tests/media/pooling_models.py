"""Tiny models that pool texts with images, and their references in `transformers`: rows of all
tokens of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    ColModernVBertConfig,
    ColModernVBertForRetrieval,
    ColPaliConfig,
    ColPaliForRetrieval,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    MetaClip2Config,
    MetaClip2Model,
    PreTrainedModel,
)

from tests.media.media_model import MediaTestModel
from tests.media.qwen_vl_models import MAKERS, TEXT, Patches
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER, TEXT_SIZES, make, save

PLACEHOLDER = QWEN2_VL_PLACEHOLDER
PIXELS = (3, 32, 32)
"""Of an image or a tile: 4 x 4 patches."""
WIDTH = 20
"""Of the vectors of models for retrieval."""


_SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": PIXELS[1],
    "patch_size": 8,
}


def _qwen_inputs(model: Any, ids: list[int], images: Sequence[Patches]) -> dict[str, Any]:
    """The arguments of a Qwen-VL `model` for a prompt with images."""
    row = torch.tensor([ids])
    model.rope_deltas = None  # it keeps the position offset of the previous call
    if not images:
        return {"input_ids": row}
    return {
        "input_ids": row,
        "pixel_values": torch.tensor(np.concatenate([patches for patches, _ in images])),
        "image_grid_thw": torch.tensor([grid for _, grid in images]),
        "mm_token_type_ids": (row == PLACEHOLDER).int(),
    }


def qwen_vl(family: str, path: Path) -> MediaTestModel:
    """A model of tests/media/qwen_vl_models.py or Qwen2-VL, whose rows are its last vectors."""
    torch.manual_seed(0)
    reference = save(MAKERS[family](), path) if family in MAKERS else make(family, path)

    def rows(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        with torch.inference_mode():
            inputs = _qwen_inputs(reference.model, ids, images)
            return reference.model(**inputs, use_cache=False).last_hidden_state[0]

    return MediaTestModel(path, rows)


def colqwen2(path: Path) -> MediaTestModel:
    """ColQwen2, with the positions that it is trained with: those of Qwen2-VL's images."""
    vision = {"depth": 2, "embed_dim": 48, "hidden_size": 64, "num_heads": 3, "patch_size": 4}
    whole = {"model_type": "qwen2_vl", "text_config": TEXT, "vision_config": vision}
    config = ColQwen2Config(
        vlm_config=whole | {"image_token_id": PLACEHOLDER, "video_token_id": 4},
        embedding_dim=WIDTH,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    reference: Any = save(ColQwen2ForRetrieval(config), path)

    def rows(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        with torch.inference_mode():
            inputs = _qwen_inputs(reference.vlm, ids, images)
            hidden = reference.vlm(**inputs, use_cache=False).last_hidden_state
            return reference.embedding_proj_layer(hidden)[0]

    return MediaTestModel(path, rows)


def colpali(path: Path) -> MediaTestModel:
    """ColPali, whose tokens all see each other."""
    width = TEXT_SIZES["hidden_size"]
    whole = {
        "model_type": "paligemma",
        "vision_config": _SIGLIP | {"projection_dim": width, "vision_use_head": False},
        "text_config": TEXT_SIZES | {"head_dim": 32, "model_type": "gemma"},
        "image_token_index": PLACEHOLDER,
        "projection_dim": width,
        "hidden_size": width,
    }
    config = ColPaliConfig(vlm_config=whole, embedding_dim=WIDTH)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    reference: PreTrainedModel = save(ColPaliForRetrieval(config), path)

    def rows(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            return reference(
                torch.tensor([ids]),
                pixel_values=pixels,
                token_type_ids=torch.zeros(1, len(ids), dtype=torch.long),
            ).embeddings[0]

    return MediaTestModel(path, rows)


COLMODERNVBERT_WORDS = {
    5: "<fake_token_around_image>",
    6: "<global-img>",
    7: "<row_1_col_1>",
    8: "<row_1_col_2>",
    9: "\n\n",
}
"""Around tiles."""


def colmodernvbert(path: Path) -> MediaTestModel:
    """ColModernVBERT: a tile has four tokens, and all tokens of a text see each other."""
    text = {
        "model_type": "modernbert",
        "vocab_size": 257,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "local_attention": 16,
        "pad_token_id": 0,
    }
    whole = {"text_config": text, "vision_config": _SIGLIP, "image_token_id": PLACEHOLDER}
    config = ColModernVBertConfig(
        vlm_config=whole | {"model_type": "modernvbert", "pixel_shuffle_factor": 2},
        embedding_dim=WIDTH,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    reference: Any = save(ColModernVBertForRetrieval(config), path)

    def rows(ids: list[int], tiles: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = {"pixel_values": torch.tensor(np.stack(tiles))[None]} if len(tiles) else {}
        with torch.inference_mode():
            return reference(torch.tensor([ids]), **pixels).embeddings[0]

    return MediaTestModel(path, rows, {**COLMODERNVBERT_WORDS, PLACEHOLDER: "<image>"})


CLIP_PLACEHOLDER = 257
"""The token behind the vocabulary."""
_CLIP_END = 6


def clip(path: Path, *, meta: bool = False) -> MediaTestModel:
    """CLIP, or MetaCLIP 2; the rows of a prompt are one, that of its text or of its image."""
    sizes = {"intermediate_size": 96, "num_hidden_layers": 2}
    config = (MetaClip2Config if meta else CLIPConfig)(
        text_config=sizes
        | {
            "vocab_size": 257,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "eos_token_id": _CLIP_END,
        },
        vision_config=sizes
        | {
            "hidden_size": 48,
            "num_attention_heads": 3,
            "image_size": PIXELS[1],
            "patch_size": 8,
        },
        projection_dim=WIDTH,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    reference: Any = save((MetaClip2Model if meta else CLIPModel)(config), path)

    def rows(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        with torch.inference_mode():
            if images:
                found = reference.get_image_features(torch.tensor(np.stack(images)))
            else:  # it embeds the token that ends the text
                found = reference.get_text_features(torch.tensor([ids]))
        return found if isinstance(found, torch.Tensor) else found.pooler_output

    return MediaTestModel(path, rows)
