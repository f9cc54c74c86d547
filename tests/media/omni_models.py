"""Tiny thinkers of Qwen2.5-Omni and Qwen3-Omni that take images and videos, and their references in
`transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    PreTrainedModel,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
)

from tests.media.media_model import MediaTestModel
from tests.media.qwen_vl_models import TEXT, TEXT_3, VISION, VISION_3, Patches
from tests.media.video_models import Video
from tests.parity.tiny_models import save

IMAGE_ID, VIDEO_ID = 3, 4
_START, _END = 5, 6
IMAGE, VIDEO = [_START, IMAGE_ID, _END], [_START, VIDEO_ID, _END]
_AUDIO: dict[str, Any] = {
    "num_mel_bins": 16,
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "max_source_positions": 40,
    "output_dim": TEXT["hidden_size"],
}
_TOKENS = {"vision_start_token_id": _START, "audio_start_token_id": 7, "audio_end_token_id": 8}


def _qwen2_5_omni() -> PreTrainedModel:
    config = Qwen2_5OmniThinkerConfig(
        text_config=TEXT | {"layer_types": ["full_attention"] * TEXT["num_hidden_layers"]},
        vision_config=VISION | {"window_size": 24, "fullatt_block_indexes": [1]},
        audio_config=_AUDIO | {"n_window": 6},
        image_token_index=IMAGE_ID,
        video_token_index=VIDEO_ID,
        audio_token_index=9,
        position_id_per_seconds=13,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Qwen2_5OmniThinkerForConditionalGeneration(config)


def _qwen3_omni() -> PreTrainedModel:
    experts = {"moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
    config = Qwen3OmniMoeThinkerConfig(
        text_config=TEXT_3 | experts,
        vision_config=VISION_3,
        audio_config=_AUDIO | {"downsample_hidden_size": 4},
        image_token_id=IMAGE_ID,
        video_token_id=VIDEO_ID,
        audio_token_id=9,
        position_id_per_seconds=13,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Qwen3OmniMoeThinkerForConditionalGeneration(config)


MAKERS: Mapping[str, Callable[[], PreTrainedModel]] = {
    "qwen2_5_omni": _qwen2_5_omni,
    "qwen3_omni": _qwen3_omni,
}


def omni_model(family: str, path: Path) -> MediaTestModel:
    """The model of `MAKERS`, saved at `path`, with the encoder of images."""
    torch.manual_seed(0)
    reference = save(MAKERS[family](), path)
    config = json.loads((path / "config.json").read_text())
    if family == "qwen2_5_omni":
        (path / "config.json").write_text(json.dumps(config | {"encoder": "images"}))

    def logits(ids: list[int], media: Sequence[Patches | Video]) -> torch.Tensor:
        row, inputs = torch.tensor([ids]), dict[str, Any]()
        for kind, pixels, length in (("image", "", 2), ("video", "_videos", 3)):
            own = [item for item in media if len(item) == length]
            if own:
                values = np.concatenate([item[0] for item in own])
                inputs[f"pixel_values{pixels}"] = torch.tensor(values)
                inputs[f"{kind}_grid_thw"] = torch.tensor([item[1] for item in own])
        positions, _ = reference.get_rope_index(
            row,
            inputs.get("image_grid_thw"),
            inputs.get("video_grid_thw"),
            torch.ones_like(row),
            second_per_grids=torch.tensor([2 / item[2].rate for item in media if len(item) == 3]),
        )
        with torch.inference_mode():
            # Qwen3-Omni's may be fractions there.
            found = reference(row, position_ids=positions.floor(), use_cache=False, **inputs)
        return found.logits[0]

    return MediaTestModel(path, logits)
