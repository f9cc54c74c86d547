"""Tiny models of ERNIE 4.5 VL, and what `transformers` makes of images and videos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Ernie4_5_VLMoeConfig, Ernie4_5_VLMoeForConditionalGeneration

from tests.media.media_model import MediaTestModel
from tests.media.qwen_vl_models import Patches
from tests.media.video_models import Video
from tests.parity.tiny_models import save

IMAGE_TOKEN, IMAGE_START, IMAGE_END = 3, 5, 6
VIDEO_TOKEN, VIDEO_START, VIDEO_END = 4, 7, 8
IMAGE = [IMAGE_START, IMAGE_TOKEN, IMAGE_END]
VIDEO = [VIDEO_START, VIDEO_TOKEN, VIDEO_END]
WORDS = {
    IMAGE_TOKEN: "<|IMAGE_PLACEHOLDER|>",
    IMAGE_START: "<|IMAGE_START|>",
    IMAGE_END: "<|IMAGE_END|>",
    VIDEO_TOKEN: "<|VIDEO_PLACEHOLDER|>",
    VIDEO_START: "<|VIDEO_START|>",
    VIDEO_END: "<|VIDEO_END|>",
}
CHANNELS = 3 * 4 * 4
TEXT: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "moe_intermediate_size": [40, 24],
    "moe_num_experts": 5,
    "moe_k": 2,
    "moe_num_shared_experts": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]},
    "bos_token_id": None,
    "eos_token_id": None,
}
VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_heads": 3,
    "patch_size": 4,
}
CONFIG: dict[str, Any] = {
    "text_config": TEXT,
    "vision_config": VISION,
    "image_token_id": IMAGE_TOKEN,
    "image_start_token_id": IMAGE_START,
    "image_end_token_id": IMAGE_END,
    "video_token_id": VIDEO_TOKEN,
    "video_start_token_id": VIDEO_START,
    "video_end_token_id": VIDEO_END,
}


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches; a quarter as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


def ernie_vl(path: Path) -> MediaTestModel:
    """A checkpoint whose first layer has no experts."""
    config = Ernie4_5_VLMoeConfig(**CONFIG)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = Ernie4_5_VLMoeForConditionalGeneration(config)
    with torch.no_grad():
        for name, bias in model.named_parameters():
            if name.endswith("e_score_correction_bias"):
                bias.copy_(torch.randn_like(bias) * 0.1)
    reference = save(model, path)

    def logits(ids: list[int], media: Sequence[Patches | Video]) -> torch.Tensor:
        row, inputs = torch.tensor([ids]), dict[str, Any]()
        own = {"": [m for m in media if len(m) == 2], "_videos": [m for m in media if len(m) == 3]}
        for (name, items), kind in zip(own.items(), ("image", "video"), strict=True):
            if items:
                inputs[f"pixel_values{name}"] = torch.tensor(np.concatenate([m[0] for m in items]))
                inputs[f"{kind}_grid_thw"] = torch.tensor([m[1] for m in items])
        if media:
            images, videos = (torch.isin(row, torch.tensor(m)).int() for m in (IMAGE, VIDEO))
            inputs["mm_token_type_ids"] = (row == IMAGE_TOKEN) + 2 * (row == VIDEO_TOKEN).int()
            inputs["moe_mm_token_type_ids"] = images + 2 * videos
        # It keeps the position offset of the previous call.
        reference.model.rope_deltas = None
        with torch.inference_mode():
            return reference(row, use_cache=False, **inputs).logits[0]

    return MediaTestModel(path, logits, WORDS)
