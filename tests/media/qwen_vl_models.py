"""Tiny models of EXAONE 4.5, GLM-V, HyperCLOVA X Vision, LFM3-VL, North, Qwen2.5-VL, Qwen3-VL and
Qwen3.5, and images, also for Qwen2-VL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    CohereCompassConfig,
    CohereCompassForConditionalGeneration,
    Exaone4_5_Config,
    Exaone4_5_ForConditionalGeneration,
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    Glm4vMoeConfig,
    Glm4vMoeForConditionalGeneration,
    Glm46VConfig,
    Glm46VForConditionalGeneration,
    GlmOcrConfig,
    GlmOcrForConditionalGeneration,
    HyperCLOVAXVisionV2Config,
    HyperCLOVAXVisionV2ForConditionalGeneration,
    Lfm3VlConfig,
    Lfm3VlForConditionalGeneration,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

from tests.families.family import MULTIPLIERS
from tests.media.media_model import MediaTestModel
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER, save

Patches = tuple[np.ndarray, tuple[int, int, int]]
CHANNELS = 3 * 2 * 4 * 4
TEXT: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
    "bos_token_id": None,
    "eos_token_id": None,
}
VISION: dict[str, Any] = {
    "depth": 3,
    "hidden_size": 48,
    "intermediate_size": 72,
    "out_hidden_size": 64,
    "num_heads": 3,
    "patch_size": 4,
}
_TOKENS = {"image_token_id": QWEN2_VL_PLACEHOLDER, "video_token_id": 4}


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches; a quarter as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


def qwen2_5_vl(full_layers: Sequence[int] = (1,)) -> PreTrainedModel:
    """All but the full layers of the tower attend within windows of 6 x 6 patches."""
    config = Qwen2_5_VLConfig(
        text_config=TEXT,
        vision_config=VISION | {"window_size": 24, "fullatt_block_indexes": list(full_layers)},
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Qwen2_5_VLForConditionalGeneration(config)


TEXT_3 = TEXT | {
    "head_dim": 24,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_interleaved": True,
        "mrope_section": [6, 3, 3],
    },
}
VISION_3 = VISION | {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 25}


def _qwen3_vl() -> PreTrainedModel:
    config = Qwen3VLConfig(text_config=TEXT_3, vision_config=VISION_3, **_TOKENS)
    config._attn_implementation = "eager"
    return Qwen3VLForConditionalGeneration(config)


def _qwen3_vl_moe() -> PreTrainedModel:
    experts = {"moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
    config = Qwen3VLMoeConfig(text_config=TEXT_3 | experts, vision_config=VISION_3, **_TOKENS)
    config._attn_implementation = "eager"
    return Qwen3VLMoeForConditionalGeneration(config)


def _cohere_compass() -> PreTrainedModel:
    """A layer has a window and rotary positions, another one neither, and others one of both."""
    rope = TEXT_3["rope_parameters"]
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    sliding = rope | {"rope_theta": 1e3, "mrope_section": [4, 4, 4]}
    config = CohereCompassConfig(
        text_config=TEXT_3
        | {
            "layer_types": kinds,
            "sliding_window": 32,
            "logit_scale": 0.5,
            "rope_parameters": {"sliding_attention": sliding, "full_attention": None},
        },
        vision_config=VISION_3,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return CohereCompassForConditionalGeneration(config)


TEXT_3_5 = TEXT | {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "mrope_interleaved": True,
        "mrope_section": [4, 2, 2],
    },
}
_VISION_3_5 = VISION | {"num_position_embeddings": 25}


def _qwen3_5() -> PreTrainedModel:
    config = Qwen3_5Config(text_config=TEXT_3_5, vision_config=_VISION_3_5, **_TOKENS)
    config._attn_implementation = "eager"
    return Qwen3_5ForConditionalGeneration(config)


def _qwen3_5_moe() -> PreTrainedModel:
    experts = {
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 24,
        "num_experts": 5,
        "num_experts_per_tok": 2,
    }
    text_config = TEXT_3_5 | experts
    config = Qwen3_5MoeConfig(text_config=text_config, vision_config=_VISION_3_5, **_TOKENS)
    config._attn_implementation = "eager"
    return Qwen3_5MoeForConditionalGeneration(config)


_TEXT_GLM = TEXT | {
    "head_dim": 16,
    "pad_token_id": 0,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    },
}
_VISION_GLM = VISION | {"image_size": 20}
_TOKENS_GLM = _TOKENS | {
    "image_start_token_id": 5,
    "image_end_token_id": 6,
    "video_start_token_id": 7,
    "video_end_token_id": 8,
}


def _exaone4_5() -> PreTrainedModel:
    """Heads of the tower share those of keys; the first two layers of the text have a window."""
    layers = ["sliding_attention", "sliding_attention", "full_attention"]
    rope = {"rope_type": "default", "rope_theta": 1e4}
    windows = {"sliding_window": 32, "layer_types": layers, "rope_parameters": rope}
    vision = VISION | {"window_size": 24, "fullatt_block_indexes": [1]}
    config = Exaone4_5_Config(
        text_config=TEXT | {"model_type": "exaone4", "head_dim": 16} | windows,
        vision_config=vision | {"num_heads": 4, "num_key_value_heads": 2},
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Exaone4_5_ForConditionalGeneration(config)


def _glm4v() -> PreTrainedModel:
    config = Glm4vConfig(text_config=_TEXT_GLM, vision_config=_VISION_GLM, **_TOKENS_GLM)
    config._attn_implementation = "eager"
    return Glm4vForConditionalGeneration(config)


def _glm46v() -> PreTrainedModel:
    text, vision = _TEXT_GLM | {"model_type": "glm4v_text"}, _VISION_GLM
    config = Glm46VConfig(text_config=text, vision_config=vision, **_TOKENS_GLM)
    config._attn_implementation = "eager"
    return Glm46VForConditionalGeneration(config)


def _glm4v_moe() -> PreTrainedModel:
    experts = {"moe_intermediate_size": 24, "n_routed_experts": 5, "num_experts_per_tok": 2}
    vision = _VISION_GLM | {"attention_bias": True}
    config = Glm4vMoeConfig(text_config=_TEXT_GLM | experts, vision_config=vision, **_TOKENS_GLM)
    config._attn_implementation = "eager"
    return Glm4vMoeForConditionalGeneration(config)


def _glm_ocr() -> PreTrainedModel:
    config = GlmOcrConfig(text_config=_TEXT_GLM, vision_config=VISION, **_TOKENS_GLM)
    config._attn_implementation = "eager"
    return GlmOcrForConditionalGeneration(config)


def _hyperclovax_vision_v2() -> PreTrainedModel:
    """The tower's results are narrower than vectors of the text."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    config = HyperCLOVAXVisionV2Config(
        text_config=TEXT
        | MULTIPLIERS
        | {"model_type": "hyperclovax", "head_dim": 16, "rope_parameters": rope},
        vision_config=VISION
        | {
            "model_type": "qwen2_5_vl_vision",
            "out_hidden_size": 48,
            "window_size": 24,
            "fullatt_block_indexes": [1],
        },
        tie_word_embeddings=False,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return HyperCLOVAXVisionV2ForConditionalGeneration(config)


def _lfm3_vl() -> PreTrainedModel:
    """A tower of convolutions and of attention whose heads share those of keys."""
    config = Lfm3VlConfig(
        text_config=TEXT
        | {
            "model_type": "lfm3",
            "head_dim": 16,
            "pad_token_id": 0,
            "rope_parameters": None,
            "layer_types": ["conv", "full_attention", "conv"],
        },
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 56,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "patch_size": 4,
        },
        projector_hidden_size=40,
        **_TOKENS,
    )
    config._attn_implementation = "eager"
    return Lfm3VlForConditionalGeneration(config)


MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "cohere_compass": _cohere_compass,
    "exaone4_5": _exaone4_5,
    "glm46v": _glm46v,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v_moe,
    "glm_ocr": _glm_ocr,
    "hyperclovax_vision_v2": _hyperclovax_vision_v2,
    "lfm3_vl": _lfm3_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5_moe,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl_moe,
}


def make_image_model(family: str, path: Path) -> MediaTestModel:
    """The model of `MAKERS`, saved at `path`."""
    torch.manual_seed(0)
    return image_model(path, save(MAKERS[family](), path))


def image_model(path: Path, reference: PreTrainedModel) -> MediaTestModel:
    """A model of this layout with its `reference`."""

    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        row = torch.tensor([ids])
        pixels = torch.tensor(np.concatenate([p for p, _ in images])) if images else None
        grid = torch.tensor([g for _, g in images]) if images else None
        kinds = (row == QWEN2_VL_PLACEHOLDER).int()
        # It keeps the position offset of the previous call.
        reference.model.rope_deltas = None
        with torch.inference_mode():
            return reference(
                row,
                pixel_values=pixels,
                image_grid_thw=grid,
                mm_token_type_ids=kinds,
                use_cache=False,
            ).logits[0]

    return MediaTestModel(path, logits)
