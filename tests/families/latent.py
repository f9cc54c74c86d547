"""Rows of decoders with experts and latent attention."""

from __future__ import annotations

from collections.abc import Mapping

from tests.families.elsewhere import MISTRAL_LARGE4
from tests.families.elsewhere_experts import DOTS3_NOTE, UNUSED_ENCODERS
from tests.families.family import DEEPSEEK_EXPERTS, LATENT, WINDOW, Family, rope

_SPARSE = {
    **LATENT,
    "attention_bias": True,
    "index_topk": 9,
    "index_head_dim": 26,
    "index_n_heads": 12,  # few scores of all tokens are 0, which would be equal
}
_MISTRAL_LARGE4 = {
    **{key: value for key, value in _SPARSE.items() if key != "q_lora_rank"},
    **{key: value for key, value in DEEPSEEK_EXPERTS.items() if key != "norm_topk_prob"},
    "head_dim": 10,
    "final_logit_softcapping": 3.0,
    "rope_parameters": rope(
        rope_type="yarn",
        factor=8.0,
        original_max_position_embeddings=32,
        beta_fast=4.0,
        beta_slow=1.0,
        attention_factor=1.0,
    ),
}
_MISTRAL_LARGE4_UNUSED = frozenset({"head_dim", "first_k_dense_replace"})
_HY_V4 = {
    **_SPARSE,
    **DEEPSEEK_EXPERTS,
    "n_group": 3,
    "topk_group": 2,
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    "indexer_types": ["full", "full", "shared", "full"],
    "hc_mult": 3,
    "hc_magnitude": 1.6,
    "hc_eps": 0.05,
    "swiglu_limit": 0.7,
}
_DOTS3_NOTE = {
    **_SPARSE,
    **DEEPSEEK_EXPERTS,
    "head_dim": 24,
    "n_group": 3,
    "topk_group": 2,
    "shared_experts_intermediate_size": 28,
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    "sliding_window": WINDOW,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_q_lora_rank": 30,
    "swa_kv_lora_rank": 36,
    "swa_head_dim": 20,
    "swa_qk_nope_head_dim": 12,
    "swa_v_head_dim": 18,
}
_KINDS = ["sliding", "compressed_sparse", "heavily_compressed", "compressed_sparse"]
_COMPRESSED = {
    "num_key_value_heads": 1,
    "layer_types": [f"{kind}_attention" for kind in _KINDS],
    "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    "sliding_window": WINDOW,
    "qk_rope_head_dim": 10,
    "q_lora_rank": 48,
    "o_groups": 3,
    "o_lora_rank": 28,
    "index_n_heads": 12,  # few scores of all rows are 0, which would be equal
    "index_head_dim": 26,
    "index_topk": 4,
    "hc_mult": 3,
    "hc_sinkhorn_iters": 2,
    "hc_eps": 0.05,
    "moe_intermediate_size": 24,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "swiglu_limit": 0.7,
    "rope_parameters": {
        "main": rope(partial_rotary_factor=0.5),
        "compress": rope(
            rope_type="yarn",
            rope_theta=16e4,
            factor=4.0,
            original_max_position_embeddings=64,
            attention_factor=1.0,
            partial_rotary_factor=0.5,
        ),
    },
}

LATENT_ATTENTION: Mapping[str, Family] = {
    "axk1": Family(
        "axk1",
        {
            **LATENT,
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
    "axk2": Family(
        "axk2",
        {
            **_SPARSE,
            **DEEPSEEK_EXPERTS,
            "n_group": 3,
            "topk_group": 2,
            "gated_norm_rank": 11,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
        },
        frozenset({"head_dim", "mlp_bias"}),
    ),
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
            "rope_parameters": rope(
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
    "deepseek_v32": Family(
        "deepseek_v32",
        {**_SPARSE, **DEEPSEEK_EXPERTS, "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1},
        frozenset({"head_dim", "mlp_bias", "first_k_dense_replace", "model_type"}),
    ),
    "deepseek_v4": Family("deepseek_v4", _COMPRESSED),
    "dots3_note": Family(
        "dots3_note_text",
        {
            **_DOTS3_NOTE,
            "layer_types": [
                f"{kind}_attention" for kind in ("sliding", "indexed", "full", "sliding")
            ],
            "use_dsa": None,
        },
        frozenset({"head_dim", "mlp_bias"}),
    ),
    "dots3_note_published": Family(
        "dots3_note_text",
        {**_DOTS3_NOTE, "rope_theta": 1e6, "swa_rope_theta": 1e4},
        frozenset({"head_dim", "mlp_bias", "model_type", "of_transformers", *UNUSED_ENCODERS}),
        elsewhere=DOTS3_NOTE,
    ),
    "glm4_moe_lite": Family(
        "glm4_moe_lite",
        {
            **LATENT,
            **DEEPSEEK_EXPERTS,
            "n_group": 3,
            "topk_group": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            "attention_bias": True,
        },
        frozenset({"mlp_bias"}),
    ),
    "glm_moe_dsa": Family(
        "glm_moe_dsa",
        {
            **_SPARSE,
            **DEEPSEEK_EXPERTS,
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            "indexer_types": ["full", "full", "shared", "full"],
        },
        frozenset({"head_dim", "mlp_bias", "first_k_dense_replace"}),
    ),
    "hy_v4": Family("hy_v4", _HY_V4, frozenset({"head_dim", "mlp_bias"})),
    "longcat_flash": Family(
        "longcat_flash",
        {
            **LATENT,
            "num_layers": 2,
            "ffn_hidden_size": 136,
            "expert_ffn_hidden_size": 24,
            "n_routed_experts": 5,
            "zero_expert_num": 3,
            "moe_topk": 3,
            "routed_scaling_factor": 2.5,
            "attention_bias": True,
        },
        frozenset(
            {f"experts.{i}.{name}_proj.weight" for i in (5, 6, 7) for name in ("gate", "up")}
            | {"head_dim", "mlp_bias"}
        ),
    ),
    "mistral_large4": Family(
        "mistral_large4_text",
        {
            **_MISTRAL_LARGE4,
            "n_group": 3,
            "topk_group": 2,
            "num_hidden_layers": 5,
            "no_rope_layers": [1, 1, 0, 1, 0],
            "kv_source_layers": [0, 1, 2, 1, 2],
            "indexer_types": ["full", "full", "shared", "shared", "full"],
        },
        _MISTRAL_LARGE4_UNUSED,
    ),
    "mistral_large4_nested": Family(
        "mistral_large4_text",
        _MISTRAL_LARGE4,
        _MISTRAL_LARGE4_UNUSED | {"ln_pre.weight", "mtp_dspark.norm.weight"},
        elsewhere=MISTRAL_LARGE4,
    ),
    "mistral4": Family(
        "mistral4",
        {
            **LATENT,
            "head_dim": 24,
            **DEEPSEEK_EXPERTS,
            "n_group": 3,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "attention_bias": True,
            "rope_parameters": rope(
                rope_type="yarn",
                factor=8.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                original_max_position_embeddings=32,
                llama_4_scaling_beta=0.4,
            ),
        },
        frozenset({"head_dim", "mlp_bias"}),
    ),
}
