"""Tiny random-weight models whose images are divided into tiles; see tiny_models.py."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AyaVisionConfig,
    AyaVisionForConditionalGeneration,
    CLIPVisionConfig,
    Cohere2Config,
    Cohere2VisionConfig,
    Cohere2VisionForConditionalGeneration,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Llama4Config,
    Llama4ForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    SiglipVisionConfig,
)

from tests.parity.tiny_decoders import SLIDING_WINDOW
from tests.parity.tiny_models import TEXT_SIZES

COHERE_PLACEHOLDER = 3
COHERE_TILE = (3, 18, 18)
COHERE_WORDS = {
    3: "<|IMG_PATCH|>",
    4: "<|START_OF_IMG|>",
    5: "<|END_OF_IMG|>",
    6: "<|IMG_LINE_BREAK|>",
    7: "TILE_GLOBAL",
    **{200 + i: f"TILE_{i}" for i in range(1, 7)},
}
_COHERE_VISION: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": COHERE_TILE[1],
    "patch_size": 4,
}


def cohere2_vision() -> PreTrainedModel:
    """Tiles of 4 x 4 patches of 4 x 4 pixels, with two pixels behind them; four tokens each."""
    config = Cohere2VisionConfig(
        vision_config=dict(_COHERE_VISION),
        text_config=cohere2_text(),
        image_token_id=COHERE_PLACEHOLDER,
        alignment_intermediate_size=104,
    )
    config._attn_implementation = "eager"
    return Cohere2VisionForConditionalGeneration(config)


def aya_vision(text: PreTrainedConfig | None = None, layer: int = -1) -> PreTrainedModel:
    """As `cohere2_vision`, of the results of a `layer` of the tower."""
    config = AyaVisionConfig(
        vision_config=_COHERE_VISION | {"vision_use_head": False},
        text_config=text or cohere2_text(),
        image_token_index=COHERE_PLACEHOLDER,
        vision_feature_layer=layer,
    )
    config._attn_implementation = "eager"
    return AyaVisionForConditionalGeneration(config)


def cohere2_text() -> Cohere2Config:
    """Two layers, the first of which has a window."""
    return Cohere2Config(
        **TEXT_SIZES,
        sliding_window=SLIDING_WINDOW,
        layer_types=["sliding_attention", "full_attention"],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


GEMMA3_PLACEHOLDER = 3
GEMMA3_TILE = (3, 18, 18)
GEMMA3_WORDS = {
    3: "<image_soft_token>",
    4: "<start_of_image>",
    5: "<end_of_image>",
    6: "\n",
    7: "\n\n",
    8: "\n\n\n",
    9: "\n\n\n\n",
}


def gemma3() -> PreTrainedModel:
    """Images of 4 x 4 patches of 4 x 4 pixels, with two pixels behind them; four tokens each. The
    window of the first layer is narrower than two images."""
    vision = _COHERE_VISION | {"vision_use_head": False, "layer_norm_eps": 1e-5}
    text = TEXT_SIZES | {
        "model_type": "gemma3_text",
        "head_dim": 32,
        "query_pre_attn_scalar": 48,
        "sliding_window": SLIDING_WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    config = Gemma3Config(
        vision_config=vision,
        text_config=text,
        mm_tokens_per_image=4,
        image_token_index=GEMMA3_PLACEHOLDER,
        boi_token_index=4,
        eoi_token_index=5,
    )
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config)
    # It begins with zeros.
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)
    return model


LLAMA4_PLACEHOLDER = 3
LLAMA4_TILE = (3, 16, 16)
LLAMA4_WORDS = {
    3: "<|patch|>",
    4: "<|image_start|>",
    5: "<|image_end|>",
    6: "<|image|>",
    7: "<|tile_x_separator|>",
    8: "<|tile_y_separator|>",
}


def llama4() -> PreTrainedModel:
    """Tiles of 4 x 4 patches of 4 x 4 pixels, four tokens each."""
    vision: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 4 * 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "image_size": LLAMA4_TILE[1],
        "patch_size": 4,
        "vision_output_dim": 56,
        "projector_input_dim": 56,
        "projector_output_dim": 56,
    }
    text = TEXT_SIZES | {
        "head_dim": 16,
        "intermediate_size_mlp": 88,
        "num_local_experts": 3,
        "moe_layers": [1],
        "no_rope_layers": [1, 0],
        "attention_chunk_size": 32,
        "pad_token_id": 0,
    }
    config = Llama4Config(
        vision_config=vision,
        text_config=text,
        image_token_index=LLAMA4_PLACEHOLDER,
        boi_token_index=4,
        eoi_token_index=5,
    )
    config._attn_implementation = "eager"
    return Llama4ForConditionalGeneration(config)


LLAVA_NEXT_PLACEHOLDER = 3
LLAVA_ONEVISION_VIDEO = 4
LLAVA_NEXT_TILE = (3, 16, 16)
LLAVA_NEXT_SIZES = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]]


def llava_next(**changes: Any) -> PreTrainedModel:
    """Tiles of 4 x 4 patches of 4 x 4 pixels; `changes` are fields of its configuration."""
    vision = CLIPVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=LLAVA_NEXT_TILE[1],
        patch_size=4,
    )
    fields: dict[str, Any] = {
        "vision_config": vision,
        "text_config": MistralConfig(**TEXT_SIZES, sliding_window=None),
        "image_token_index": LLAVA_NEXT_PLACEHOLDER,
        "image_grid_pinpoints": LLAVA_NEXT_SIZES,
    }
    config = LlavaNextConfig(**(fields | changes))
    config._attn_implementation = "eager"
    return LlavaNextForConditionalGeneration(config)


def llava_next_video() -> PreTrainedModel:
    """As `llava_next`, with videos."""
    fields = llava_next().config.to_dict()
    config = LlavaNextVideoConfig(
        vision_config=fields["vision_config"],
        text_config=fields["text_config"],
        image_token_index=LLAVA_NEXT_PLACEHOLDER,
        video_token_index=LLAVA_ONEVISION_VIDEO,
        image_grid_pinpoints=LLAVA_NEXT_SIZES,
    )
    config._attn_implementation = "eager"
    return LlavaNextVideoForConditionalGeneration(config)


def llava_onevision(**changes: Any) -> PreTrainedModel:
    """Tiles as those of `llava_next`, of which an image has as many tokens as two have; `changes`
    are fields of its configuration."""
    vision = SiglipVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=LLAVA_NEXT_TILE[1],
        patch_size=4,
        vision_use_head=False,
    )
    fields: dict[str, Any] = {
        "vision_config": vision,
        "text_config": Qwen2Config(**TEXT_SIZES),
        "image_token_index": LLAVA_NEXT_PLACEHOLDER,
        "video_token_index": LLAVA_ONEVISION_VIDEO,
        "image_grid_pinpoints": [*LLAVA_NEXT_SIZES, [48, 48]],
        "vision_aspect_ratio": "anyres_max_2",
    }
    config = LlavaOnevisionConfig(**(fields | changes))
    config._attn_implementation = "eager"
    return LlavaOnevisionForConditionalGeneration(config)
