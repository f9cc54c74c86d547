"""Tiny random-weight models for tests of formats, caches and executors, created by `transformers`
and saved as checkpoints; tests/families has a row for each family.

Sizes are odd on purpose where formats and caches leave them free, and no parameter keeps its
initial value (norms of 1, biases of 0), so that a forgotten operand is detected.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    BitNetConfig,
    BitNetForCausalLM,
    CLIPVisionConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    InternVLConfig,
    InternVLForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    PixtralVisionConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)

from tests.parity.tiny_decoders import MAKERS, llama

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

LLAVA_PLACEHOLDER = 3
LLAVA_IMAGE = (3, 24, 24)


def llava(**changes: Any) -> PreTrainedModel:
    """Images of nine patches; `changes` are fields of its configuration."""
    vision = CLIPVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=24,
        patch_size=8,
    )
    fields: dict[str, Any] = {
        "vision_config": vision,
        "text_config": llama().config,
        "image_token_index": LLAVA_PLACEHOLDER,
    }
    config = LlavaConfig(**(fields | changes))
    config._attn_implementation = "eager"
    return LlavaForConditionalGeneration(config)


QWEN2_VL_PLACEHOLDER = 3


def qwen2_vl() -> PreTrainedModel:
    """Images of any grid, in patches of 3 x 2 x 4 x 4 numbers."""
    text = {
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
    vision = {"depth": 2, "embed_dim": 48, "hidden_size": 64, "num_heads": 3, "patch_size": 4}
    config = Qwen2VLConfig(
        text_config=text,
        vision_config=vision | {"mlp_ratio": 2},
        image_token_id=QWEN2_VL_PLACEHOLDER,
        video_token_id=4,
    )
    config._attn_implementation = "eager"
    return Qwen2VLForConditionalGeneration(config)


SMOLVLM_PLACEHOLDER = 3
SMOLVLM_TILE = (3, 18, 18)
SMOLVLM_WORDS = {
    3: "<image>",
    4: "<fake_token_around_image>",
    5: "<global-img>",
    6: "\n",
    7: "\n\n",
    **{230 + 3 * i + j: f"<row_{i + 1}_col_{j + 1}>" for i in range(3) for j in range(3)},
}


def smolvlm(kind: Literal["SmolVLM", "Idefics3"] = "SmolVLM") -> PreTrainedModel:
    """Tiles of 4 x 4 patches of 4 x 4 pixels, with two pixels behind them; four tokens each."""
    configs = {"SmolVLM": SmolVLMConfig, "Idefics3": Idefics3Config}
    models = {
        "SmolVLM": SmolVLMForConditionalGeneration,
        "Idefics3": Idefics3ForConditionalGeneration,
    }
    config = configs[kind](
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "image_size": SMOLVLM_TILE[1],
            "patch_size": 4,
        },
        text_config=llama(pad_token_id=0).config.to_dict(),
        image_token_id=SMOLVLM_PLACEHOLDER,
        scale_factor=2,
    )
    config._attn_implementation = "eager"
    return models[kind](config)


TEXT_SIZES: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
PIXTRAL_PLACEHOLDER = 3
PIXTRAL_WORDS = {3: "[IMG]", 4: "[IMG_BREAK]", 5: "[IMG_END]"}


def pixtral(**changes: Any) -> PreTrainedModel:
    """Images of any size, in patches of 4 x 4 pixels; `changes` are fields of its configuration."""
    fields: dict[str, Any] = {
        "vision_config": pixtral_vision(),
        "text_config": llama().config,
        "image_token_index": PIXTRAL_PLACEHOLDER,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
    }
    config = LlavaConfig(**(fields | changes))
    config._attn_implementation = "eager"
    return LlavaForConditionalGeneration(config)


def mistral3(text: PreTrainedConfig | None = None, merge: int = 2) -> PreTrainedModel:
    """As `pixtral`, with squares of `merge` x `merge` patches merged."""
    config = Mistral3Config(
        vision_config=pixtral_vision(),
        text_config=text or MistralConfig(**TEXT_SIZES, sliding_window=None),
        image_token_index=PIXTRAL_PLACEHOLDER,
        spatial_merge_size=merge,
        tie_word_embeddings=False,
    )
    config._attn_implementation = "eager"
    return Mistral3ForConditionalGeneration(config)


def pixtral_vision() -> PixtralVisionConfig:
    """Patches of 4 x 4 pixels."""
    return PixtralVisionConfig(
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=3,
        image_size=64,
        patch_size=4,
        hidden_act="silu",
    )


INTERNVL_PLACEHOLDER = 3
INTERNVL_TILE = (3, 16, 16)
INTERNVL_WORDS = {3: "<IMG_CONTEXT>", 4: "<img>", 5: "</img>"}


def internvl(
    text: PreTrainedConfig | None = None, layer: int = -1, **changes: Any
) -> PreTrainedModel:
    """Tiles of 4 x 4 patches of 4 x 4 pixels, four tokens each, of the results of a `layer` of the
    tower; `changes` are fields of its configuration."""
    vision: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "image_size": INTERNVL_TILE[1],
        "patch_size": 4,
        "attention_bias": True,
    }
    config = InternVLConfig(
        vision_config=vision | changes,
        text_config=text or Qwen2Config(**TEXT_SIZES, tie_word_embeddings=False),
        image_token_id=INTERNVL_PLACEHOLDER,
        vision_feature_layer=layer,
        tie_word_embeddings=False,
    )
    config._attn_implementation = "eager"
    return InternVLForConditionalGeneration(config)


_MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    **MAKERS,
    "internvl": internvl,
    "llava": llava,
    "mistral3": mistral3,
    "pixtral": pixtral,
    "qwen2_vl": qwen2_vl,
    "smolvlm": smolvlm,
}


def make(family: str, directory: Path, dtype: str = "f32", *, seed: int = 0) -> PreTrainedModel:
    """Save a checkpoint of `family` with weights of `dtype`; returns the f32 reference of it."""
    torch.manual_seed(seed)
    return save(_MAKERS[family](), directory, dtype)


def save(model: PreTrainedModel, directory: Path, dtype: str = "f32") -> PreTrainedModel:
    """Give `model` random weights and save it; returns the f32 reference of the checkpoint."""
    model.eval()
    _randomize(model)
    model.to(DTYPES[dtype]).save_pretrained(directory)
    # Reloaded: `to` has rounded the rotary frequencies as well, which no checkpoint contains.
    return (
        type(model)
        .from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
        .eval()
    )


def tiny_llama(**changes: Any) -> PreTrainedModel:
    """A Llama in f32 that is not saved; `changes` are fields of its configuration."""
    torch.manual_seed(0)
    model = llama(**changes).eval()
    _randomize(model)
    return model


def tiny_bitnet() -> PreTrainedModel:
    """A BitNet in f32 that is not saved."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = BitNetConfig(vocab_size=257, bos_token_id=1, eos_token_id=2, **sizes, **heads)
    model = BitNetForCausalLM(config).eval()
    _randomize(model)
    return model


@torch.no_grad()
def _randomize(model: PreTrainedModel) -> None:
    """Matrices keep the size of activations; norms and biases are not neutral."""
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if name.endswith("bias"):
            parameter.copy_(0.3 * noise)
        elif parameter.ndim < 2:  # norms: around what they are initialized to, 1 or Gemma's 0
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
