"""The families of the suite, a row each: a tiny model of random weights, built by `transformers`.

A row says what of the family's configuration is not that of `SIZES`. Sizes are odd on purpose, and
what norms add to the variance is large, so that every field of a configuration changes logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from tests.families.elsewhere import EXAONE, GEMMA4, INTERNLM2, MINICPM, Elsewhere

WINDOW = 7  # tokens; far below the prompts of the tests
SIZES: Mapping[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 20,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 0.03,
    "layer_norm_eps": 0.03,
    "norm_epsilon": 0.03,
    "layer_norm_epsilon": 0.03,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Ends of names of biases that balance experts; larger ones would choose the same for every token.
_BALANCING = ("e_score_correction_bias", "expert_bias")
# Fields that are limits, or names of what else the checkpoint has.
NEUTRAL = frozenset(
    {
        "max_position_embeddings",
        "architectures",
        "bos_token_id",
        "eos_token_id",
        "max_seq_len",
        "n_positions",
        "num_nextn_predict_layers",
    }
)


@dataclass(frozen=True)
class Family:
    """A row. `model_type` is that of `transformers`, `changes` are fields of its configuration;
    `unused` are fields that all decoders have and this model has no use for, and ends of names of
    tensors that change nothing; `attention` is the implementation of the reference; `elsewhere` is
    the family that is made of it, if this is one that `transformers` does not have."""

    model_type: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unused: frozenset[str] = frozenset()
    attention: str = "eager"
    elsewhere: Elsewhere | None = None


def _rope(**fields: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 1e4, **fields}


_BY_LAYER_TYPE = {
    "sliding_attention": _rope(),
    "full_attention": _rope(rope_type="linear", rope_theta=1e6, factor=8.0),
}
_TYPES = ["sliding_attention", "full_attention"] * 2
_SLIDING = {"sliding_window": WINDOW, "layer_types": _TYPES}
_MULTIPLIERS = {
    "attention_multiplier": 0.3,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.7,
}
_LFM2 = {"norm_eps": 0.03, "rope_parameters": _rope()}
_LLAMA3 = _rope(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
_LONGROPE = _rope(
    rope_type="longrope",
    long_factor=[1.0 + 0.5 * i for i in range(4)],
    short_factor=[1.0] * 4,
    original_max_position_embeddings=32,
    partial_rotary_factor=0.5,
)
_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
_GEMMA4 = {
    "vocab_size_per_layer_input": 257,
    "hidden_size_per_layer_input": 12,
    "global_head_dim": 28,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_hidden_layers": 6,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 3.0,
}
_SHARED_EXPERT = {
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 5,
    "num_experts_per_tok": 2,
}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
    "linear_conv_kernel_dim": 3,
}
_DEEPSEEK_EXPERTS = {
    "moe_intermediate_size": 24,
    "n_routed_experts": 6,  # of which each is chosen by some token
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
_LATENT = {
    "num_key_value_heads": 6,
    "head_dim": 10,
    "q_lora_rank": 48,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 10,
    "v_head_dim": 22,
}
_GPT = {"n_embd": 96, "n_layer": 4, "n_head": 6, "n_positions": 4096}
_NEO_TYPES = [[["global", "local"], 2]]
_MAMBA = {"mamba_n_heads": 12, "mamba_d_head": 16, "mamba_d_state": 24, "mamba_chunk_size": 8}
_FALCON_MULTIPLIERS = {
    "lm_head_multiplier": 0.7,
    "embedding_multiplier": 3.0,
    "mlp_multipliers": [0.8, 1.3],
    "key_multiplier": 0.6,
    "attention_out_multiplier": 1.4,
    "attention_in_multiplier": 0.9,
    "ssm_multipliers": [0.8, 1.2, 0.7, 1.5, 0.6],
    "ssm_in_multiplier": 1.1,
    "ssm_out_multiplier": 1.6,
}
_MIXER = {
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "shared_intermediate_size": 88,
    "num_local_experts": 0,
    **_MAMBA,
}
_NEMOTRON_MIXER = {
    "mamba_num_heads": 6,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 20,
    "chunk_size": 8,
    "time_step_min": 1e-30,  # which `transformers` takes for a limit
}
_PARTIAL = {"rope_parameters": _rope(partial_rotary_factor=0.5)}

FAMILIES: Mapping[str, Family] = {
    "afmoe": Family(
        "afmoe",
        {
            "moe_intermediate_size": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "route_scale": 2.5,
            "mup_enabled": True,
            "attention_bias": True,
            **_SLIDING,
        },
    ),
    "apertus": Family(
        "apertus",
        {"head_dim": 16, "rope_parameters": _LLAMA3, "attention_bias": True},
        frozenset({"act_fn.eps"}),
    ),
    "arcee": Family("arcee", {"attention_bias": True, "mlp_bias": True}),
    "axk1": Family(
        "axk1",
        {
            **_LATENT,
            "moe_intermediate_size": 24,
            "n_routed_experts": 6,
            "n_group": 3,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            "attention_bias": True,
        },
        frozenset({"head_dim", "mlp_bias"}),
    ),
    "biogpt": Family("biogpt", {"layer_norm_eps": 1e-5}, frozenset({"k_proj.bias"})),
    "bloom": Family("bloom", {"n_layer": 4, "n_head": 6}, frozenset({"query_key_value.bias"})),
    "codegen": Family("codegen", {**_GPT, "n_head": 4, "rotary_dim": 8}),
    "bamba": Family(
        "bamba",
        {
            **_MAMBA,
            "mamba_n_groups": 2,
            "mamba_proj_bias": True,
            "attn_layer_indices": [0, 2],
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "cohere": Family("cohere", {"logit_scale": 0.3, "attention_bias": True}),
    "cohere2": Family("cohere2", {"logit_scale": 0.3, **_SLIDING}),
    "cohere2_moe": Family(
        "cohere2_moe",
        {
            "logit_scale": 0.3,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "num_shared_experts": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            "prefix_dense_intermediate_size": 56,
            "rms_norm_eps": None,
            **_SLIDING,
        },
    ),
    "cohere2_moe_sigmoid": Family(
        "cohere2_moe",
        {
            "logit_scale": 0.3,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "num_shared_experts": 1,
            "expert_selection_fn": "sigmoid",
            "shared_expert_combination_strategy": "sum",
            "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
            "prefix_dense_intermediate_size": 136,
            "prefix_dense_sliding_window_pattern": 2,
            **_SLIDING,
        },
        # There are norms by the root mean square; any pattern but 1 is alike.
        frozenset({"layer_norm_eps", "prefix_dense_sliding_window_pattern"}),
    ),
    "cohere_plus": Family("cohere", {"use_qk_norm": True, "head_dim": 16}),
    "cwm": Family("cwm", {"rope_parameters": _LLAMA3, **_SLIDING}),
    "ernie4_5": Family("ernie4_5", {"use_bias": True}),
    "deepseek_v2": Family(
        "deepseek_v2",
        {
            "num_key_value_heads": 6,
            "head_dim": 10,  # what rotates
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 1,
            "q_lora_rank": 48,
            "kv_lora_rank": 40,
            "qk_nope_head_dim": 14,
            "qk_rope_head_dim": 10,
            "v_head_dim": 22,
            "n_routed_experts": 12,
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "routed_scaling_factor": 2.5,
            "attention_bias": True,
            "mlp_bias": True,
            "max_position_embeddings": 1280,
            "rope_parameters": _rope(
                rope_type="yarn",
                factor=40.0,
                mscale=0.9,
                mscale_all_dim=0.7,
                original_max_position_embeddings=32,
            ),
        },
        frozenset({"head_dim"}),
    ),
    "deepseek_v2_lite": Family(
        "deepseek_v2",
        {
            "num_key_value_heads": 6,
            "head_dim": 10,  # what rotates
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 1,
            "q_lora_rank": None,
            "kv_lora_rank": 40,
            "qk_nope_head_dim": 14,
            "qk_rope_head_dim": 10,
            "v_head_dim": 22,
            "n_routed_experts": 7,
            "topk_method": "greedy",
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "tie_word_embeddings": True,
        },
        frozenset({"head_dim"}),
    ),
    "deepseek_v3": Family(
        "deepseek_v3",
        {
            "num_key_value_heads": 6,
            "head_dim": 10,
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 1,
            "q_lora_rank": 48,
            "kv_lora_rank": 40,
            "qk_nope_head_dim": 14,
            "qk_rope_head_dim": 10,
            "v_head_dim": 22,
            "n_routed_experts": 6,
            "n_group": 3,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "attention_bias": True,
        },
        frozenset({"head_dim", "mlp_bias"}),
    ),
    "dots1": Family(
        "dots1",
        {**_DEEPSEEK_EXPERTS, "first_k_dense_replace": 1, "attention_bias": True, **_SLIDING},
    ),
    "ernie4_5_moe": Family(
        "ernie4_5_moe",
        {
            "use_bias": True,
            "moe_intermediate_size": 24,
            "moe_num_experts": 6,
            "moe_k": 3,
            "moe_layer_end_index": 2,
            "tie_word_embeddings": False,
        },
    ),
    "exaone": Family(
        "llama",
        {"rope_parameters": _LLAMA3},
        frozenset({"attention_bias", "mlp_bias"}),
        elsewhere=EXAONE,
    ),
    "exaone4": Family("exaone4", _SLIDING),
    "exaone4_full": Family(
        "exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}
    ),
    "exaone_moe": Family(
        "exaone_moe",
        {
            "moe_intermediate_size": 24,
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "num_shared_experts": 2,
            "routed_scaling_factor": 2.5,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            **_SLIDING,
        },
    ),
    "falcon": Family(
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 136, "bias": True},
    ),
    # The slopes are powers of 2, so that biases of 256 tokens have the 8 bits to which they are
    # rounded there; "eager" would add them twice.
    "falcon_alibi": Family(
        "falcon",
        {"num_attention_heads": 4, "alibi": True, "multi_query": False, "parallel_attn": False},
        frozenset({"rope_parameters"}),
        attention="sdpa",
    ),
    "falcon_multi_query": Family("falcon", {"multi_query": True}),
    "falcon_one_norm": Family(
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1},
    ),
    "falcon_h1": Family(
        "falcon_h1",
        {
            **_MAMBA,
            **_FALCON_MULTIPLIERS,
            "mamba_d_ssm": 192,
            "mamba_n_groups": 3,
            "mamba_proj_bias": True,
            "mlp_bias": True,
        },
    ),
    "falcon_h1_norm": Family(
        "falcon_h1",
        {
            **_MAMBA,
            **_FALCON_MULTIPLIERS,
            "mamba_d_ssm": None,
            "mamba_rms_norm": True,
            "projectors_bias": True,
            "attention_bias": True,
        },
    ),
    "flex_olmo": Family("flex_olmo", {"num_experts": 5, "num_experts_per_tok": 2}),
    "flint": Family(
        "flint",
        {
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "mlp_only_layers": [2],
            **_SLIDING,
        },
    ),
    "gemma": Family("gemma"),
    "gemma2": Family(
        "gemma2",
        {
            "query_pre_attn_scalar": 48,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            **_SLIDING,
        },
    ),
    "gemma3": Family(
        "gemma3_text",
        {"query_pre_attn_scalar": 48, **_SLIDING, "rope_parameters": _BY_LAYER_TYPE},
    ),
    "gemma4": Family(
        "gemma4_text",
        {**_GEMMA4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "attention_bias": True},
    ),
    "gemma4_nested": Family("gemma4_text", _GEMMA4, elsewhere=GEMMA4),
    "gemma4_one_matrix": Family(
        "gemma4_text",
        {
            **_GEMMA4,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 3,
            "hidden_size_per_layer_input": 0,
        },
        frozenset({"use_double_wide_mlp", "vocab_size_per_layer_input"}),
    ),
    "glm": Family("glm", _PARTIAL),
    "glm4": Family("glm4", {**_PARTIAL, "attention_bias": True}),
    "glm4_moe": Family(
        "glm4_moe",
        {
            **_DEEPSEEK_EXPERTS,
            **_PARTIAL,
            "first_k_dense_replace": 1,
            "n_group": 3,
            "topk_group": 2,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "glm4_moe_lite": Family(
        "glm4_moe_lite",
        {
            **_LATENT,
            **_DEEPSEEK_EXPERTS,
            "n_group": 3,
            "topk_group": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            "attention_bias": True,
        },
        frozenset({"mlp_bias"}),
    ),
    "gpt2": Family("gpt2", {**_GPT, "n_inner": 136, "tie_word_embeddings": False}),
    "gpt_bigcode": Family(
        "gpt_bigcode", {**_GPT, "n_inner": 136}, frozenset({"num_key_value_heads"})
    ),
    "gpt_neo": Family(
        "gpt_neo",
        {"num_layers": 4, "num_heads": 6, "window_size": WINDOW, "attention_types": _NEO_TYPES},
    ),
    "gpt_neox": Family("gpt_neox", _PARTIAL),
    "gpt_neox_in_turn": Family("gpt_neox", {"use_parallel_residual": False}),
    "gpt_oss": Family(
        "gpt_oss",
        {
            **_EXPERTS,
            **_SLIDING,
            "swiglu_limit": 1.25,
            "rope_parameters": _rope(
                rope_type="yarn",
                factor=8.0,
                beta_fast=32.0,
                beta_slow=1.0,
                truncate=False,
                original_max_position_embeddings=64,
            ),
        },
    ),
    "gptj": Family("gptj", {**_GPT, "rotary_dim": 8}),
    "granite": Family("granite", {**_MULTIPLIERS, "attention_bias": True, "mlp_bias": True}),
    "granite_hybrid": Family(
        "granitemoehybrid",
        {**_MULTIPLIERS, **_MIXER},
        frozenset({"intermediate_size", "position_embedding_type", "rope_parameters"}),
    ),
    "granite_hybrid_experts": Family(
        "granitemoehybrid",
        {
            **_MIXER,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "position_embedding_type": "rope",
        },
    ),
    "granite_moe": Family("granitemoe", {**_MULTIPLIERS, **_EXPERTS}),
    "granite_moe_shared": Family(
        "granitemoeshared", {**_EXPERTS, "shared_intermediate_size": 88, "attention_bias": True}
    ),
    "granite_moe_swa": Family(
        "granitemoe_swa",
        {
            **_EXPERTS,
            **_SLIDING,
            "shared_intermediate_size": 88,
            "tie_word_embeddings": False,
            "layer_rope_theta": [1e4, 0, 1e6, 1e4],
        },
        frozenset({"rope_parameters"}),
    ),
    "granite_swa": Family(
        "granite_swa",
        {
            **_MULTIPLIERS,
            **_SLIDING,
            "attention_bias": True,
            "mlp_bias": True,
            "layer_rope_theta": [1e4, 1e5, 1e6, 0],
        },
        frozenset({"rope_parameters"}),
    ),
    "helium": Family("helium", {"head_dim": 16}),  # `transformers` has no others
    "hunyuan": Family("hunyuan_v1_dense", {"attention_bias": True}),
    "hunyuan_alpha": Family(
        "hunyuan_v1_dense",
        {"rope_parameters": _rope(rope_type="dynamic", alpha=50.0, factor=1.0)},
    ),
    "hunyuan_moe": Family(
        "hunyuan_v1_moe", {"num_experts": 5, "moe_topk": [2, 2, 2, 2], "attention_bias": True}
    ),
    "hy_v3": Family(
        "hy_v3",
        {
            "moe_intermediate_size": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "num_shared_experts": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
        },
    ),
    "hyperclovax": Family("hyperclovax", _MULTIPLIERS),
    "internlm2": Family(
        "llama", unused=frozenset({"attention_bias", "mlp_bias"}), elsewhere=INTERNLM2
    ),
    "jais2": Family("jais2"),
    "lfm2": Family(
        "lfm2",
        {
            **_LFM2,
            "layer_types": ["full_attention", "conv", "full_attention", "conv"],
            "conv_bias": True,
            "block_multiple_of": 1,
            "block_ffn_dim_multiplier": 1.3,
        },
    ),
    "lfm2_moe": Family(
        "lfm2_moe",
        {
            **_LFM2,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "conv_L_cache": 4,
            "tie_word_embeddings": False,
            "moe_intermediate_size": 24,
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "routed_scaling_factor": 2.5,
        },
    ),
    "llama": Family("llama", {"tie_word_embeddings": True}),
    "llama3": Family(
        "llama", {"attention_bias": True, "mlp_bias": True, "rope_parameters": _LLAMA3}
    ),
    "mamba2": Family(
        "mamba2",
        {
            "hidden_size": 48,
            "num_heads": 6,
            "head_dim": 16,
            "n_groups": 2,
            "state_size": 20,
            "conv_kernel": 4,
            "expand": 2,
            "chunk_size": 8,
            "use_bias": True,
        },
    ),
    "mellum": Family(
        "mellum",
        {
            **_EXPERTS,
            "moe_intermediate_size": 24,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            **_SLIDING,
            "rope_parameters": _BY_LAYER_TYPE,
        },
    ),
    "minicpm": Family(
        "granite",
        {
            "attention_multiplier": 16**-0.5,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.6,
            "logits_scaling": 2.4,
            "tie_word_embeddings": True,
        },
        elsewhere=MINICPM,
    ),
    "minicpm3": Family(
        "minicpm3",
        {**_LATENT, "dim_model_base": 40, "attention_bias": True, "mlp_bias": True},
        frozenset({"head_dim"}),
    ),
    "minimax_m2": Family("minimax_m2", _EXPERTS),
    "ministral": Family("ministral", _SLIDING),
    "ministral3": Family(
        "ministral3",
        {
            "sliding_window": WINDOW,
            "rope_parameters": _rope(
                rope_type="yarn",
                factor=16.0,
                beta_fast=32.0,
                beta_slow=1.0,
                original_max_position_embeddings=256,
                llama_4_scaling_beta=0.1,
            ),
        },
    ),
    "mistral": Family("mistral", {"sliding_window": WINDOW}),
    "mixtral": Family("mixtral", {**_EXPERTS, "sliding_window": WINDOW}),
    "mpt": Family("mpt", {"d_model": 96, "n_layers": 4, "n_heads": 6, "expansion_ratio": 4}),
    "nanochat": Family("nanochat", {"head_dim": 16, "final_logit_softcapping": 3.0}),
    "nemotron": Family(
        "nemotron", {**_PARTIAL, "norm_eps": 0.03, "attention_bias": True, "mlp_bias": True}
    ),
    "nemotron_h": Family(
        "nemotron_h",
        {
            **_NEMOTRON_MIXER,
            "layers_block_type": ["full_attention", "linear_attention", "mlp", "linear_attention"],
            "use_bias": True,
            "mlp_bias": True,
        },
    ),
    "nemotron_h_experts": Family(
        "nemotron_h",
        {
            **_NEMOTRON_MIXER,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "n_routed_experts": 6,
            "num_experts_per_tok": 3,
            "n_group": 3,
            "topk_group": 2,
            "routed_scaling_factor": 2.5,
            "moe_intermediate_size": 40,
            "moe_shared_expert_intermediate_size": 56,
            "moe_latent_size": 48,
            "mlp_bias": True,
        },
        frozenset({"intermediate_size"}),
    ),
    "olmo": Family("olmo", {"attention_bias": True}),
    "olmo2": Family("olmo2", {"attention_bias": True}),
    "olmo3": Family("olmo3", {**_SLIDING, "rope_parameters": _BY_LAYER_TYPE}),
    "olmoe": Family("olmoe", {"num_experts": 5, "num_experts_per_tok": 2}),
    "openai_gpt": Family("openai-gpt", {**_GPT, "tie_word_embeddings": False}),
    # Without rotary positions, biases of keys add the same number to all scores of a query.
    "opt": Family("opt", {"ffn_dim": 136, "word_embed_proj_dim": 96}, frozenset({"k_proj.bias"})),
    "persimmon": Family("persimmon", _PARTIAL),
    "phi": Family("phi", _PARTIAL),
    "phi3": Family("phi3", {**_PARTIAL, "sliding_window": WINDOW}),
    "phi3_long": Family("phi3", {"rope_parameters": _LONGROPE}),
    "qwen2": Family("qwen2", {"use_sliding_window": True, **_SLIDING}),
    "qwen2_moe": Family(
        "qwen2_moe",
        {
            **_SHARED_EXPERT,
            "mlp_only_layers": [2],
        },
    ),
    "qwen3": Family("qwen3", {"use_sliding_window": True, "attention_bias": True, **_SLIDING}),
    "qwen3_moe": Family(
        "qwen3_moe",
        {
            "moe_intermediate_size": 64,
            "num_experts": 13,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [2],
        },
    ),
    "qwen3_5": Family(
        "qwen3_5_text",
        {
            **_DELTA,
            "layer_types": ["full_attention", "linear_attention"] * 2,
            "linear_num_value_heads": 2,
            "attention_bias": True,
        },
    ),
    "qwen3_5_moe": Family(
        "qwen3_5_moe_text",
        {
            **_DELTA,
            **_SHARED_EXPERT,
            "layer_types": ["linear_attention", "full_attention"] * 2,
        },
    ),
    "qwen3_next": Family(
        "qwen3_next",
        {
            **_DELTA,
            **_SHARED_EXPERT,
            "layer_types": ["full_attention", "linear_attention"] * 2,
            "mlp_only_layers": [2],
        },
    ),
    "seed_oss": Family("seed_oss", {"attention_out_bias": True, "mlp_bias": True}),
    "smollm3": Family("smollm3", {"no_rope_layers": [1, 0, 1, 1]}),
    "solar_open": Family(
        "solar_open",
        {**_DEEPSEEK_EXPERTS, "attention_bias": True, "intermediate_size": 136},
        frozenset({"intermediate_size", "mlp_bias"}),
    ),
    "stablelm": Family("stablelm", {**_PARTIAL, "use_qkv_bias": True}),
    "stablelm_parallel": Family("stablelm", {"use_parallel_residual": True}),
    "starcoder2": Family("starcoder2", {"sliding_window": WINDOW}),
    "vaultgemma": Family(
        "vaultgemma",
        {
            "query_pre_attn_scalar": 48,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            **_SLIDING,
        },
    ),
    "youtu": Family("youtu", {**_LATENT, "attention_bias": True}, frozenset({"head_dim"})),
}


def make(
    name: str, directory: Path, *, seed: int = 0, changes: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Save a checkpoint of the family `name`, with `changes` of its configuration, in f32; returns
    its reference."""
    torch.manual_seed(seed)
    family = FAMILIES[name]
    kind = CONFIG_MAPPING[family.model_type]
    known = kind().to_dict().keys()
    fields = {key: value for key, value in SIZES.items() if key in known}
    fields |= dict(family.changes) | dict(changes or {})
    config = kind(**fields)
    made: object = AutoModelForCausalLM.from_config(config, attn_implementation=family.attention)
    assert isinstance(made, PreTrainedModel)
    model = made.eval()
    _randomize(model)
    model.save_pretrained(directory)
    if family.elsewhere is not None:
        family.elsewhere.rewrite(directory)
    return model


@torch.no_grad()
def _randomize(model: PreTrainedModel) -> None:
    """Matrices keep the size of activations; norms and biases are not neutral; embeddings are large
    enough for the last token to matter to the next, but not so large that it would repeat."""
    tied = model.config.tie_word_embeddings
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if name.endswith(_BALANCING):
            parameter.copy_(0.05 * noise)
        elif name.endswith("bias"):
            parameter.copy_(0.3 * noise)
        elif "embed" in name and not tied:
            parameter.copy_(noise)
        elif parameter.ndim == 1:  # norms: around what they are initialized to, 1 or Gemma's 0
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if name.endswith(_BALANCING):
            buffer.copy_(0.05 * torch.randn_like(buffer))
