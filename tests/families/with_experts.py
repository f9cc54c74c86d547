"""Rows of decoders with experts, and attention to keys and values."""

from __future__ import annotations

from collections.abc import Mapping

from tests.families.elsewhere_experts import (
    BAILING_MOE,
    BAILING_MOE_V2,
    DEEPSEEK,
    EXAONE_MOE_FIRST,
    LLAMA4,
    MIMO_V2,
    PARAM2,
    PHIMOE,
    SARVAM_MOE,
    STEP3_ENCODER,
    STEP3_WITH_IMAGES,
    STEP3P5,
)
from tests.families.family import (
    BY_LAYER_TYPE,
    DEEPSEEK_EXPERTS,
    MULTIPLIERS,
    PARTIAL,
    SHARED_EXPERT,
    SLIDING,
    WINDOW,
    Family,
    rope,
)

_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
_BAILING_MOE_V2 = {
    **DEEPSEEK_EXPERTS,
    **PARTIAL,
    "first_k_dense_replace": 1,
    "n_group": 3,
    "topk_group": 2,
    "use_qk_norm": True,
    "attention_bias": True,
}
_SHARED_EXPERTS = {**SHARED_EXPERT, "shared_expert_intermediate_size": 48}
_HALVES = {kind: {**rope, "partial_rotary_factor": 0.5} for kind, rope in BY_LAYER_TYPE.items()}
_LAGUNA = {
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_routed_scaling_factor": 2.5,
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    "rope_parameters": BY_LAYER_TYPE,
    **SLIDING,
}
_MIMO_V2 = {
    "num_attention_heads": 8,
    "v_head_dim": 14,
    "moe_intermediate_size": 24,
    "n_routed_experts": 6,
    "n_group": 3,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": 2.5,
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    "rope_parameters": _HALVES,
}
_STEP3 = {
    "num_attention_groups": 1,
    "max_position_embedding": 4096,
    "share_q_dim": 28,
    "moe_num_experts": 6,
    "moe_top_k": 3,
    "moe_intermediate_size": 24,
    "share_expert_dim": 40,
    "norm_expert_weight": True,
    "moe_layers_enum": "1,2",
}
_STEP3P5 = {
    "num_sliding_attention_heads": 4,
    "moe_intermediate_size": 24,
    "share_expert_dim": 40,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_router_scaling_factor": 2.5,
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    "swiglu_limits": [None, 0.4, 0.0, None],
    "swiglu_limits_shared": [0.3, 0.5, None, None],
    **SLIDING,
}
_LLAMA4 = {
    "num_local_experts": 3,  # of which each is chosen by some token
    "intermediate_size_mlp": 88,
    "moe_layers": [0, 1, 3],
    "attention_chunk_size": 11,
    "floor_scale": 8,
    "attn_scale": 0.3,
    "attention_bias": True,
}
_PHIMOE = {
    **_EXPERTS,
    "router_jitter_noise": 0.4,
    "sliding_window": WINDOW,
    "attention_bias": True,
    "lm_head_bias": True,
    "rope_parameters": rope(
        rope_type="longrope",
        original_max_position_embeddings=8192,
        short_factor=[1.0 + i / 5 for i in range(8)],
        long_factor=[2.0] * 8,
        short_mscale=1.2,
        long_mscale=1.3,
    ),
}

WITH_EXPERTS: Mapping[str, Family] = {
    "afmoe": Family(
        "afmoe",
        {
            "moe_intermediate_size": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "route_scale": 2.5,
            "mup_enabled": True,
            "attention_bias": True,
            **SLIDING,
        },
    ),
    "aria": Family(
        "aria_text",
        {
            "moe_num_experts": 5,
            "moe_topk": 2,
            "moe_num_shared_experts": 2,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "bailing_moe": Family(
        "qwen2_moe",
        {**_SHARED_EXPERTS, "norm_topk_prob": True, "mlp_only_layers": [0]},
        elsewhere=BAILING_MOE,
    ),
    "bailing_moe_v2": Family("glm4_moe", _BAILING_MOE_V2, elsewhere=BAILING_MOE_V2),
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
            **SLIDING,
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
            **SLIDING,
        },
        # There are norms by the root mean square; any pattern but 1 is alike.
        frozenset({"layer_norm_eps", "prefix_dense_sliding_window_pattern"}),
    ),
    "dbrx": Family(
        "dbrx",
        {
            "d_model": 96,
            "n_heads": 6,
            "n_layers": 4,
            "attn_config": {"clip_qkv": 0.8, "kv_n_heads": 2, "rope_theta": 1e4},
            "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 5, "moe_top_k": 2},
        },
    ),
    "deepseek": Family(
        "qwen2_moe",
        {**_SHARED_EXPERTS, "qkv_bias": False, "mlp_only_layers": [0, 1, 3]},
        elsewhere=DEEPSEEK,
    ),
    "dots1": Family(
        "dots1",
        {**DEEPSEEK_EXPERTS, "first_k_dense_replace": 1, "attention_bias": True, **SLIDING},
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
    "exaone_moe": Family(
        "exaone_moe",
        {
            "moe_intermediate_size": 24,
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "num_shared_experts": 2,
            "routed_scaling_factor": 2.5,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            **SLIDING,
        },
    ),
    "exaone_moe_first": Family(
        "exaone_moe",
        {
            "moe_intermediate_size": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            **SLIDING,
        },
        elsewhere=EXAONE_MOE_FIRST,
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
            **SLIDING,
        },
    ),
    "gemma4_experts": Family(
        "gemma4_text",
        {
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": WINDOW,
            "global_head_dim": 28,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 5,
            "top_k_experts": 2,
            "moe_intermediate_size": 24,
        },
        frozenset({"use_double_wide_mlp", "vocab_size_per_layer_input"}),
    ),
    "glm4_moe": Family(
        "glm4_moe",
        {
            **DEEPSEEK_EXPERTS,
            **PARTIAL,
            "first_k_dense_replace": 1,
            "n_group": 3,
            "topk_group": 2,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "gpt_oss": Family(
        "gpt_oss",
        {
            **_EXPERTS,
            **SLIDING,
            "swiglu_limit": 1.25,
            "rope_parameters": rope(
                rope_type="yarn",
                factor=8.0,
                beta_fast=32.0,
                beta_slow=1.0,
                truncate=False,
                original_max_position_embeddings=64,
            ),
        },
    ),
    "granite_moe": Family("granitemoe", {**MULTIPLIERS, **_EXPERTS}),
    "granite_moe_shared": Family(
        "granitemoeshared", {**_EXPERTS, "shared_intermediate_size": 88, "attention_bias": True}
    ),
    "granite_moe_swa": Family(
        "granitemoe_swa",
        {
            **_EXPERTS,
            **SLIDING,
            "shared_intermediate_size": 88,
            "tie_word_embeddings": False,
            "layer_rope_theta": [1e4, 0, 1e6, 1e4],
        },
        frozenset({"rope_parameters"}),
    ),
    "grok1": Family(
        "grok-1",
        {
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "max_attn_value": 3.0,
            "attn_output_multiplier": 0.4,
            "embedding_multiplier_scale": 3.0,
            "tie_word_embeddings": False,
            "head_dim": None,
        },
    ),
    "grok2": Family(
        "grok-2",
        {
            "moe_intermediate_size": 24,
            "num_local_experts": 5,
            "attn_logit_softcapping": 2.0,
            "attn_temperature_len": 8,
            "router_logit_softcapping": 1.5,
            "final_logit_softcapping": 3.0,
            "embedding_multiplier_scale": 3.0,
            "rope_theta": 1e4,
        },
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
    "kolibri1": Family(
        "kolibri1",
        {
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            **SLIDING,
        },
    ),
    "laguna": Family(
        "laguna",
        {
            **_LAGUNA,
            "num_attention_heads_per_layer": [6, 4, 2, 6],
            "moe_router_logit_softcapping": 1.5,
            "attention_bias": True,
        },
        frozenset({"num_attention_heads"}),  # the list stands for it
    ),
    "laguna_by_element": Family("laguna", {**_LAGUNA, "gating": "per-element"}),
    "llama4": Family("llama4_text", _LLAMA4),
    "llama4_with_images": Family("llama4_text", _LLAMA4, elsewhere=LLAMA4),
    "mellum": Family(
        "mellum",
        {
            **_EXPERTS,
            "moe_intermediate_size": 24,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            **SLIDING,
            "rope_parameters": BY_LAYER_TYPE,
        },
    ),
    "mimo_v2": Family("mimo_v2_flash", {**_MIMO_V2, **SLIDING, "attention_bias": True}),
    "mimo_v2_published": Family(
        "mimo_v2_flash",
        {
            **_MIMO_V2,
            "sliding_window": WINDOW,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
            "rope_parameters": {
                "full_attention": rope(rope_theta=1e6, partial_rotary_factor=0.5),
                "sliding_attention": rope(partial_rotary_factor=0.5),
            },
        },
        elsewhere=MIMO_V2,
    ),
    "minimax_m2": Family("minimax_m2", _EXPERTS),
    "mixtral": Family("mixtral", {**_EXPERTS, "sliding_window": WINDOW}),
    "olmoe": Family("olmoe", {"num_experts": 5, "num_experts_per_tok": 2}),
    "param2": Family("glm4_moe", _BAILING_MOE_V2, elsewhere=PARAM2),
    "phimoe": Family("phimoe", _PHIMOE),
    "phimoe_first": Family("phimoe", _PHIMOE, elsewhere=PHIMOE),
    "qwen2_moe": Family(
        "qwen2_moe",
        {
            **SHARED_EXPERT,
            "mlp_only_layers": [2],
        },
    ),
    "qwen3_moe": Family(
        "qwen3_moe",
        {
            "moe_intermediate_size": 64,
            "num_experts": 13,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [2],
        },
        frozenset({"model_type"}),
    ),
    "sarvam_moe": Family("glm4_moe", _BAILING_MOE_V2, elsewhere=SARVAM_MOE),
    "solar_open": Family(
        "solar_open",
        {**DEEPSEEK_EXPERTS, "attention_bias": True, "intermediate_size": 136},
        frozenset({"intermediate_size", "mlp_bias"}),
    ),
    "step3": Family("step3_text", _STEP3, frozenset({"max_position_embedding"})),
    "step3_with_images": Family(
        "step3_text",
        _STEP3,
        frozenset(f"{name}.weight" for name in STEP3_ENCODER),
        elsewhere=STEP3_WITH_IMAGES,
    ),
    "step3p5": Family(
        "step3p5",
        {
            **_STEP3P5,
            "query_pre_attn_scalar": 30.0,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": _HALVES,
        },
    ),
    "step3p5_published": Family(
        "step3p5",
        {
            **_STEP3P5,
            "rope_parameters": {
                "sliding_attention": rope(),
                "full_attention": {
                    **rope(rope_theta=1e6, partial_rotary_factor=0.5),
                    **STEP3P5.fields["rope_scaling"],
                },
            },
        },
        frozenset({"yarn_only_types"}),  # a list of one type has no other order
        elsewhere=STEP3P5,
    ),
}
