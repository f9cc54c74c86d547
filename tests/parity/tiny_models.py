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
    BertConfig,
    BertModel,
    CLIPVisionConfig,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    InternVLConfig,
    InternVLForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mamba2Config,
    Mamba2ForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    MixtralConfig,
    MixtralForCausalLM,
    PixtralVisionConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SLIDING_WINDOW = 7  # tokens; far below the prompts of the tests


def _llama(**changes: Any) -> PreTrainedModel:
    sizes = {
        "vocab_size": 257,
        "hidden_size": 96,
        "intermediate_size": 136,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    }
    return LlamaForCausalLM(LlamaConfig(**(sizes | changes), attn_implementation="eager"))


def _tied_llama() -> PreTrainedModel:
    return _llama(tie_word_embeddings=True, rms_norm_eps=1e-5)


def _llama3() -> PreTrainedModel:
    """Llama 3's rotary scaling, untied head, biases."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=193,
            hidden_size=64,
            intermediate_size=88,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=24,
            attention_bias=True,
            mlp_bias=True,
            max_position_embeddings=4096,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def _qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=331,
            hidden_size=80,
            intermediate_size=120,
            num_hidden_layers=3,
            num_attention_heads=5,
            num_key_value_heads=1,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
    )


def _qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=313,
            hidden_size=72,
            intermediate_size=112,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
    )


def _qwen3_moe() -> PreTrainedModel:
    """Layers 0 and 2 are dense: one is listed, the other is between sparse ones."""
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=307,
            hidden_size=96,
            intermediate_size=104,
            moe_intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=24,
            num_experts=13,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[0, 2],
            max_position_embeddings=4096,
            attn_implementation="eager",
        )
    )


def _mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=259,
            hidden_size=64,
            intermediate_size=88,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=5,
            num_experts_per_tok=2,
            max_position_embeddings=4096,
            attn_implementation="eager",
        )
    )


def _deepseek_v2() -> PreTrainedModel:
    """As V2: queries from their own latent, experts in groups, YaRN; with biases."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 40.0,
        "mscale": 0.9,
        "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 32,
    }
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            vocab_size=269,
            hidden_size=80,
            intermediate_size=104,
            moe_intermediate_size=24,
            num_hidden_layers=3,
            first_k_dense_replace=1,
            num_attention_heads=5,
            q_lora_rank=48,
            kv_lora_rank=40,
            qk_nope_head_dim=14,
            qk_rope_head_dim=10,
            v_head_dim=22,
            n_routed_experts=12,
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            num_experts_per_tok=3,
            n_shared_experts=2,
            routed_scaling_factor=2.5,
            attention_bias=True,
            mlp_bias=True,
            max_position_embeddings=1280,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def _deepseek_v2_lite() -> PreTrainedModel:
    """As V2-Lite: queries from the hidden state; and a tied head."""
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            vocab_size=271,
            hidden_size=64,
            intermediate_size=96,
            moe_intermediate_size=32,
            num_hidden_layers=3,
            first_k_dense_replace=1,
            num_attention_heads=4,
            q_lora_rank=None,
            kv_lora_rank=64,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=32,
            n_routed_experts=7,
            topk_method="greedy",
            num_experts_per_tok=2,
            n_shared_experts=1,
            tie_word_embeddings=True,
            max_position_embeddings=4096,
            attn_implementation="eager",
        )
    )


def _gemma3() -> PreTrainedModel:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=263,
            hidden_size=72,
            intermediate_size=104,
            num_hidden_layers=7,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=32,
            query_pre_attn_scalar=48,
            sliding_window=SLIDING_WINDOW,
            max_position_embeddings=4096,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def _mamba2() -> PreTrainedModel:
    return Mamba2ForCausalLM(
        Mamba2Config(
            vocab_size=241,
            hidden_size=48,
            num_heads=6,
            head_dim=16,
            n_groups=2,
            state_size=20,
            conv_kernel=4,
            expand=2,
            num_hidden_layers=3,
            chunk_size=8,
            use_bias=True,
        )
    )


def _granite_hybrid(**changes: Any) -> PreTrainedModel:
    """Attention without positions between state-space layers."""
    sizes = {
        "vocab_size": 233,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "intermediate_size": 64,
        "shared_intermediate_size": 88,
        "num_local_experts": 0,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 24,
        "mamba_chunk_size": 8,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.7,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    config = GraniteMoeHybridConfig(**(sizes | changes), attn_implementation="eager")
    return GraniteMoeHybridForCausalLM(config)


def _granite_experts() -> PreTrainedModel:
    """With experts and rotary positions."""
    return _granite_hybrid(
        num_local_experts=5, num_experts_per_tok=2, position_embedding_type="rope"
    )


def _bert() -> PreTrainedModel:
    return BertModel(
        BertConfig(
            vocab_size=211,
            hidden_size=60,
            intermediate_size=100,
            num_hidden_layers=3,
            num_attention_heads=5,
            max_position_embeddings=160,
            attn_implementation="eager",
        ),
        add_pooling_layer=False,
    )


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
        "text_config": _llama().config,
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
        text_config=_llama(pad_token_id=0).config.to_dict(),
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
        "text_config": _llama().config,
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
    "bert": _bert,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v2_lite": _deepseek_v2_lite,
    "gemma3": _gemma3,
    "granite_experts": _granite_experts,
    "granite_hybrid": _granite_hybrid,
    "internvl": internvl,
    "llama": _tied_llama,
    "llama3": _llama3,
    "llava": llava,
    "mamba2": _mamba2,
    "mistral3": mistral3,
    "mixtral": _mixtral,
    "pixtral": pixtral,
    "qwen2": _qwen2,
    "qwen2_vl": qwen2_vl,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "smolvlm": smolvlm,
}
DECODERS = (
    "deepseek_v2",
    "deepseek_v2_lite",
    "gemma3",
    "granite_experts",
    "granite_hybrid",
    "llama",
    "llama3",
    "mamba2",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
)


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
    model = _llama(**changes).eval()
    _randomize(model)
    return model


@torch.no_grad()
def _randomize(model: PreTrainedModel) -> None:
    """Matrices keep the size of activations; norms and biases are not neutral."""
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if name.endswith("bias"):
            parameter.copy_(0.3 * noise)
        elif parameter.ndim == 1:  # norms: around what they are initialized to, 1 or Gemma's 0
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
