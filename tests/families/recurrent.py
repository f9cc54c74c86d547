"""Rows of decoders with a state in place of, or beside, some attention."""

from __future__ import annotations

from collections.abc import Mapping

from tests.families.elsewhere import MINIMAX_M1, MINIMAX_TEXT_01
from tests.families.family import (
    MULTIPLIERS,
    SHARED_EXPERT,
    WINDOW,
    Family,
    rope,
)

_LFM2 = {"norm_eps": 0.03, "rope_parameters": rope()}
_LFM3 = {
    "norm_eps": 0.03,
    "sliding_window": WINDOW,
    "rope_parameters": {
        "sliding_attention": rope(),
        "full_attention": rope(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.5),
    },
}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
    "linear_conv_kernel_dim": 3,
}
_SELECTIVE = {
    "hidden_size": 48,
    "state_size": 5,
    "conv_kernel": 3,
    "time_step_rank": 7,
    "use_bias": True,
    "use_associative_scan": False,
}
# `transformers` saves the convolutions of q, k and v as thirds, whatever their widths.
_DELTA_OF_ONE_WIDTH = {**_DELTA, "linear_value_head_dim": 4}
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

_ZAMBA2 = {
    "n_mamba_heads": 12,
    "mamba_d_state": 24,
    "mamba_ngroups": 2,
    "chunk_size": 8,
    "adapter_rank": 7,
    "time_step_min": 1e-30,  # which `transformers` takes for a limit
}
_RWKV7 = {
    "head_dim": 24,
    "decay_low_rank_dim": 9,
    "a_low_rank_dim": 10,
    "v_low_rank_dim": 11,
    "gate_low_rank_dim": 13,
}
# Buffers that follow from the layer, which `transformers` saves.
_DECAYS = frozenset({"slope_rate", "query_decay", "key_decay", "diagonal_decay"})
_MINIMAX_TYPES = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_MINIMAX = {
    "num_local_experts": 5,
    "block_size": 8,
    "full_attn_alpha_factor": 1.3,
    "full_attn_beta_factor": 0.8,
    "linear_attn_alpha_factor": 1.2,
    "linear_attn_beta_factor": 0.7,
    "mlp_alpha_factor": 1.1,
    "mlp_beta_factor": 0.6,
}

RECURRENT: Mapping[str, Family] = {
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
    "falcon_h1": Family(
        "falcon_h1",
        {
            **_MAMBA,
            **_FALCON_MULTIPLIERS,
            "mamba_d_ssm": 192,
            "mamba_n_groups": 2,
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
    "falcon_mamba": Family(
        "falcon_mamba", {**_SELECTIVE, "mixer_rms_eps": 0.03, "tie_word_embeddings": False}
    ),
    "granite_hybrid": Family(
        "granitemoehybrid",
        {**MULTIPLIERS, **_MIXER},
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
    "jamba": Family(
        "jamba",
        {
            "mamba_d_state": 5,
            "mamba_d_conv": 3,
            "mamba_dt_rank": 7,
            "mamba_proj_bias": True,
            "attn_layer_period": 2,
            "attn_layer_offset": 0,
            "num_experts": 5,
        },
    ),
    "kimi_linear": Family(
        "kimi_linear",
        {
            "num_key_value_heads": 6,
            "kv_lora_rank": 40,
            "qk_nope_head_dim": 14,
            "qk_rope_head_dim": 10,
            "v_head_dim": 22,
            "moe_intermediate_size": 24,
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "n_group": 3,
            "topk_group": 2,
            "n_shared_experts": 2,
            "linear_head_dim": 12,
            "linear_num_heads": 4,
            "linear_conv_kernel_dim": 3,
            "layer_types": ["full_attention", "linear_attention"] * 2,
            "mlp_layer_types": ["dense", "sparse"] * 2,
        },
        frozenset({"head_dim"}),
    ),
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
    "lfm3": Family(
        "lfm3",
        {
            **_LFM3,
            "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
            "conv_bias": True,
            "attention_bias": True,
        },
    ),
    "lfm3_plain": Family(
        "lfm3",
        {
            **_LFM3,
            "layer_types": ["full_attention", "conv"] * 2,
            "use_sandwich_norm": False,
            "use_attention_gate": False,
            "tie_word_embeddings": False,
        },
    ),
    "mamba": Family("mamba", _SELECTIVE),
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
    "minimax": Family("minimax", {**_MINIMAX, "layer_types": _MINIMAX_TYPES}, _DECAYS),
    "minimax_first": Family("minimax", _MINIMAX, _DECAYS, elsewhere=MINIMAX_TEXT_01),
    "minimax_m1": Family("minimax", _MINIMAX, _DECAYS, elsewhere=MINIMAX_M1),
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
    "olmo_hybrid": Family(
        "olmo_hybrid",
        {
            **_DELTA_OF_ONE_WIDTH,
            "layer_types": ["full_attention", "linear_attention"] * 2,
            "attention_bias": True,
        },
    ),
    "olmo_hybrid_without_positions": Family(
        "olmo_hybrid",
        {
            **_DELTA_OF_ONE_WIDTH,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_allow_neg_eigval": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": None},
        },
        frozenset({"rope_parameters"}),
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
            **SHARED_EXPERT,
            "layer_types": ["linear_attention", "full_attention"] * 2,
        },
    ),
    "plamo2": Family(
        "plamo2",
        {
            "hidden_size_per_head": 20,
            "attention_window_size": WINDOW,
            "full_attention_idx": [3],
            "mamba_d_state": 24,
            "mamba_num_heads": 6,
            "tie_word_embeddings": False,
        },
    ),
    "qwen3_next": Family(
        "qwen3_next",
        {
            **_DELTA,
            **SHARED_EXPERT,
            "layer_types": ["full_attention", "linear_attention"] * 2,
            "mlp_only_layers": [2],
        },
    ),
    "recurrent_gemma": Family(
        "recurrent_gemma",
        {
            "block_types": ["recurrent", "attention"],
            "attention_window_size": WINDOW,
            "lru_width": 72,
            "logits_soft_cap": 3.0,
            "attention_bias": True,
        },
    ),
    "rwkv": Family(
        "rwkv",
        # The states of the reference have as many channels as its tokens.
        {"attention_hidden_size": 72, "rescale_every": 2, "use_cache": False},
    ),
    "rwkv5": Family("rwkv5", {"head_size": 12, "head_size_divisor": 50, "rescale_every": 2}),
    "rwkv6": Family("rwkv6", {"head_size": 24, "head_size_divisor": 50, "rescale_every": 2}),
    "rwkv7": Family("rwkv7", {**_RWKV7, "norm_eps": 0.03}),
    "rwkv7_without_biases": Family(
        "rwkv7",
        {
            **_RWKV7,
            "norm_first": False,
            "norm_bias": False,
            "intermediate_size": None,
            "hidden_ratio": 1.5,
        },
    ),
    "zamba2": Family(
        "zamba2",
        {
            **_ZAMBA2,
            "num_mem_blocks": 2,
            "layers_block_type": ["linear_attention", "hybrid", "hybrid", "hybrid"],
            "use_shared_attention_adapter": True,
            "use_mem_rope": True,
            "num_key_value_heads": 6,
        },
    ),
    "zamba2_plain": Family(
        "zamba2",
        {
            **_ZAMBA2,
            "layers_block_type": ["hybrid", "linear_attention", "hybrid", "linear_attention"],
            "add_bias_linear": True,
        },
        frozenset({"rope_parameters"}),
    ),
}
