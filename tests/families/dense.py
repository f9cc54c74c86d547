"""Rows of decoders with one feed-forward layer in each layer."""

from __future__ import annotations

from collections.abc import Mapping

from tests.families.elsewhere import (
    AQUILA,
    AQUILA_FIRST,
    BAICHUAN,
    BAICHUAN2,
    BAICHUAN_13B,
    BAICHUAN_FIRST,
    BLOOM_ALONE,
    CHATGLM,
    CHATGLM_LATER,
    COHERE_COMPASS,
    DECILM,
    EXAONE,
    EXAONE4_5,
    FALCON_FIRST,
    GEMMA3,
    GEMMA3N,
    GEMMA4,
    GEMMA4_UNIFIED,
    GPT2_ALONE,
    INTERNLM,
    INTERNLM2,
    INTERNLM3,
    IQUEST_CODER,
    K2_HORIZON,
    LLAMA_FIRST,
    MIMO,
    MINICPM,
    MINISTRAL3,
    MISTRAL3,
    MPT,
    MUSE_GLIMMER,
    ORION,
    PANGU_EMBEDDED,
    PLAMO3,
    QWEN,
    STABLELM_FIRST,
    TELECHAT,
    TELECHAT2,
    TELECHAT3,
    TELEFLM,
    XVERSE,
)
from tests.families.family import (
    BY_LAYER_TYPE,
    LATENT,
    MULTIPLIERS,
    PARTIAL,
    SLIDING,
    TYPES,
    WINDOW,
    Family,
    rope,
)

_LLAMA3 = rope(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
_LONGROPE = rope(
    rope_type="longrope",
    long_factor=[1.0 + 0.5 * i for i in range(4)],
    short_factor=[1.0] * 4,
    original_max_position_embeddings=32,
    partial_rotary_factor=0.5,
)
_GEMMA4 = {
    "vocab_size_per_layer_input": 257,
    "hidden_size_per_layer_input": 12,
    "global_head_dim": 28,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_hidden_layers": 6,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 3.0,
}
_GEMMA3N = {
    "vocab_size_per_layer_input": 200,  # later tokens have the embeddings of the first
    "hidden_size_per_layer_input": 12,
    "laurel_rank": 10,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_hidden_layers": 6,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 3.0,
}
_GEMMA4_UNIFIED = {key: value for key, value in _GEMMA4.items() if "per_layer_input" not in key}
_MUSE_GLIMMER = {
    "post_norm_eps": 0.02,
    "qk_scale_factor": 1.7,
    "output_multiplier": 0.6,
    "final_logit_softcapping": 3.0,
    **SLIDING,
}
_COMPASS = {
    "logit_scale": 0.3,
    "rope_parameters": {"sliding_attention": rope(), "full_attention": None},
    **SLIDING,
}
_GPT = {"n_embd": 96, "n_layer": 4, "n_head": 6, "n_positions": 4096}
_NAS_BLOCKS = [
    {"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 2.0}},
    {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 5.0}},
    {"attention": {"no_op": True}, "ffn": {"replace_with_linear": True}},
    {"attention": {"n_heads_in_group": 1}, "ffn": {"no_op": True}},
]
_DECILM_BLOCKS = [
    {"attention": {"n_heads_in_group": group}, "ffn": {"ffn_mult": 2.0}} for group in (3, 6, 1, 3)
]
_CHATGLM = {
    "attention_bias": True,
    "rope_parameters": rope(rope_theta=2e4, partial_rotary_factor=0.5),
}
_TELECHAT = {"attention_bias": True, "mlp_bias": True}
_TELECHAT_UNUSED = frozenset({*_TELECHAT, "training_seqlen"})
_NEO_TYPES = [[["global", "local"], 2]]

_OURO_GATE = frozenset({"early_exit_gate.weight", "early_exit_gate.bias"})
_LLAMA_BIASES = frozenset({"attention_bias", "mlp_bias"})

DENSE: Mapping[str, Family] = {
    "apertus": Family(
        "apertus",
        {"head_dim": 16, "rope_parameters": _LLAMA3, "attention_bias": True},
        frozenset({"act_fn.eps"}),
    ),
    "aquila": Family("llama", elsewhere=AQUILA),
    "aquila_first": Family("llama", elsewhere=AQUILA_FIRST),
    "arcee": Family("arcee", {"attention_bias": True, "mlp_bias": True}),
    "baichuan": Family("llama", unused=_LLAMA_BIASES, elsewhere=BAICHUAN),
    "baichuan2": Family("llama", unused=_LLAMA_BIASES | {"z_loss_weight"}, elsewhere=BAICHUAN2),
    "baichuan_13b": Family(
        "smollm3",
        {"no_rope_layers": [0] * 4, "num_key_value_heads": 6, "tie_word_embeddings": False},
        _LLAMA_BIASES | {"rope_parameters", "model_max_length"},
        attention="alibi",
        elsewhere=BAICHUAN_13B,
    ),
    "baichuan_first": Family("llama", unused=_LLAMA_BIASES, elsewhere=BAICHUAN_FIRST),
    "biogpt": Family("biogpt", {"layer_norm_eps": 1e-5}, frozenset({"k_proj.bias"})),
    "bitnet": Family("bitnet", {"attention_bias": True, "head_dim": 16}),
    "bloom": Family(
        "bloom",
        {"n_layer": 4, "n_head": 6, "tie_word_embeddings": False},
    ),
    "bloom_alone": Family(
        "bloom",
        {"n_layer": 4, "n_head": 8},
        elsewhere=BLOOM_ALONE,
    ),
    "chatglm": Family("glm", _CHATGLM, _LLAMA_BIASES, elsewhere=CHATGLM),
    "chatglm_later": Family("glm", _CHATGLM, _LLAMA_BIASES, elsewhere=CHATGLM_LATER),
    "codegen": Family("codegen", {**_GPT, "n_head": 4, "rotary_dim": 8}),
    "cohere": Family("cohere", {"logit_scale": 0.3, "attention_bias": True}),
    "cohere2": Family("cohere2", {"logit_scale": 0.3, **SLIDING}),
    "cohere_compass": Family("cohere_compass_text", {**_COMPASS, "rope_parameters": BY_LAYER_TYPE}),
    "cohere_compass_nested": Family(
        "cohere_compass_text",
        _COMPASS,
        frozenset({"visual.pos_embed.weight"}),
        elsewhere=COHERE_COMPASS,
    ),
    "cohere_plus": Family("cohere", {"use_qk_norm": True, "head_dim": 16}),
    "cwm": Family("cwm", {"rope_parameters": _LLAMA3, **SLIDING}),
    "ernie4_5": Family("ernie4_5", {"use_bias": True}),
    "exaone": Family(
        "llama",
        {"rope_parameters": _LLAMA3},
        _LLAMA_BIASES,
        elsewhere=EXAONE,
    ),
    "exaone4": Family("exaone4", SLIDING),
    "exaone4_full": Family(
        "exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}
    ),
    "exaone4_5_nested": Family(
        "exaone4",
        SLIDING,
        frozenset({"merger.ln_q.weight", "mtp.norm.weight"}),
        elsewhere=EXAONE4_5,
    ),
    "falcon": Family(
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 136, "bias": True},
    ),
    "falcon_first": Family(
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2},
        elsewhere=FALCON_FIRST,
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
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "gemma": Family("gemma"),
    "gemma2": Family(
        "gemma2",
        {
            "query_pre_attn_scalar": 48,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            **SLIDING,
        },
    ),
    "gemma3": Family(
        "gemma3_text",
        {"query_pre_attn_scalar": 48, **SLIDING, "rope_parameters": BY_LAYER_TYPE},
    ),
    "gemma3_nested": Family(
        "gemma3_text", {**SLIDING, "rope_parameters": BY_LAYER_TYPE}, elsewhere=GEMMA3
    ),
    "gemma3n": Family(
        "gemma3n_text",
        {
            **_GEMMA3N,
            "intermediate_size": [136, 88, 136, 136, 72, 136],
            "activation_sparsity_pattern": [0.9, 0.7, 0.0, 0.8, 0.6, 0.0],
            "num_kv_shared_layers": 2,
            "altup_num_inputs": 3,
            "altup_active_idx": 1,
            "attention_bias": True,
        },
    ),
    "gemma3n_nested": Family(
        "gemma3n_text",
        {
            **_GEMMA3N,
            "activation_sparsity_pattern": [0.7, 0.0, 0.0, 0.0, 0.0, 0.0],
            "num_kv_shared_layers": 0,
            "altup_correct_scale": False,
        },
        frozenset({"altup.correct_output_scale"}),
        elsewhere=GEMMA3N,
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
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 0,
        },
        frozenset({"use_double_wide_mlp", "vocab_size_per_layer_input"}),
    ),
    "gemma4_unified": Family(
        "gemma4_unified_text",
        _GEMMA4_UNIFIED,
        frozenset({"patch_ln1.weight", "embedding_projection.weight"}),
        elsewhere=GEMMA4_UNIFIED,
    ),
    "glm": Family("glm", PARTIAL),
    "glm4": Family("glm4", {**PARTIAL, "attention_bias": True}),
    "gpt2": Family("gpt2", {**_GPT, "n_inner": 136, "tie_word_embeddings": False}),
    "gpt2_alone": Family("gpt2", _GPT, elsewhere=GPT2_ALONE),
    "gpt_bigcode": Family(
        "gpt_bigcode", {**_GPT, "n_inner": 136}, frozenset({"num_key_value_heads"})
    ),
    "gpt_neo": Family(
        "gpt_neo",
        {"num_layers": 4, "num_heads": 6, "window_size": WINDOW, "attention_types": _NEO_TYPES},
    ),
    "gpt_neox": Family("gpt_neox", PARTIAL),
    "gpt_neox_in_turn": Family("gpt_neox", {"use_parallel_residual": False}),
    "gpt_neox_japanese": Family(
        "gpt_neox_japanese", {**PARTIAL, "intermediate_multiple_size": 2, "hidden_act": "gelu_new"}
    ),
    "gptj": Family("gptj", {**_GPT, "rotary_dim": 8}),
    "granite": Family("granite", {**MULTIPLIERS, "attention_bias": True, "mlp_bias": True}),
    "granite_swa": Family(
        "granite_swa",
        {
            **MULTIPLIERS,
            **SLIDING,
            "attention_bias": True,
            "mlp_bias": True,
            "layer_rope_theta": [1e4, 1e5, 1e6, 0],
        },
        frozenset({"rope_parameters"}),
    ),
    "helium": Family("helium", {"head_dim": 16}),  # `transformers` has no others
    "hrm_text": Family(
        "hrm_text",
        {
            "num_hidden_layers": 2,
            "H_cycles": 2,
            "L_cycles": 2,
            "embedding_scale": 0.7,
            "prefix_lm": False,  # prompts that see themselves have a test of their own
        },
        frozenset({"attention_bias", "initializer_range", "prefix_lm"}),
    ),
    "hunyuan": Family("hunyuan_v1_dense", {"attention_bias": True}),
    "hunyuan_alpha": Family(
        "hunyuan_v1_dense",
        {"rope_parameters": rope(rope_type="dynamic", alpha=50.0, factor=1.0)},
    ),
    "hyperclovax": Family("hyperclovax", MULTIPLIERS),
    "internlm": Family("llama", {"attention_bias": True}, _LLAMA_BIASES, elsewhere=INTERNLM),
    "internlm2": Family("llama", unused=_LLAMA_BIASES, elsewhere=INTERNLM2),
    "internlm3": Family("llama", {"attention_bias": True, "mlp_bias": True}, elsewhere=INTERNLM3),
    "iquest_coder": Family("iquestcoder", elsewhere=IQUEST_CODER),
    "jais": Family("jais"),
    "jais2": Family("jais2"),
    "k2_horizon": Family("llama", unused=frozenset({"mlp_bias"}), elsewhere=K2_HORIZON),
    "llama": Family("llama", {"tie_word_embeddings": True}),
    "llama_first": Family("llama", elsewhere=LLAMA_FIRST),
    "llama3": Family(
        "llama", {"attention_bias": True, "mlp_bias": True, "rope_parameters": _LLAMA3}
    ),
    "mimo": Family(
        "qwen2", unused=frozenset({"mtp_layers.0.final_layernorm.weight"}), elsewhere=MIMO
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
        {**LATENT, "dim_model_base": 40, "attention_bias": True, "mlp_bias": True},
        frozenset({"head_dim"}),
    ),
    "ministral": Family("ministral", SLIDING),
    "ministral3": Family(
        "ministral3",
        {
            "sliding_window": WINDOW,
            "rope_parameters": rope(
                rope_type="yarn",
                factor=16.0,
                beta_fast=32.0,
                beta_slow=1.0,
                original_max_position_embeddings=16,
                llama_4_scaling_beta=0.3,
            ),
        },
    ),
    "ministral3_nested": Family("ministral3", elsewhere=MINISTRAL3),
    "mistral": Family("mistral", {"sliding_window": WINDOW}),
    "mistral3_nested": Family("mistral", {"tie_word_embeddings": False}, elsewhere=MISTRAL3),
    "modernbert_decoder": Family(
        "modernbert-decoder",
        {
            "norm_eps": 0.03,
            "local_attention": 2 * WINDOW + 1,
            "layer_types": TYPES,
            "rope_parameters": BY_LAYER_TYPE,
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "classifier_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "modernbert_decoder_tied": Family(
        "modernbert-decoder",
        {
            "norm_eps": 0.03,
            "local_attention": 2 * WINDOW + 1,
            "layer_types": TYPES,
            "rope_parameters": BY_LAYER_TYPE,
        },
    ),
    "mpt": Family("mpt", {"d_model": 96, "n_layers": 4, "n_heads": 6, "expansion_ratio": 4}),
    "mpt_clip": Family(  # under the architecture's first name
        "mpt",
        {
            "d_model": 96,
            "n_layers": 4,
            "n_heads": 6,
            "attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3},
        },
        elsewhere=MPT,
    ),
    "muse_glimmer": Family(
        "muse_glimmer_text",
        {**_MUSE_GLIMMER, "layer_rope_theta": [1e4, 0, 1e4, 1e4], "attention_bias": True},
        frozenset({"rope_parameters"}),
    ),
    "muse_glimmer_nested": Family(
        "muse_glimmer_text",
        _MUSE_GLIMMER,
        frozenset({"fc1.weight", "vision_projection.weight"}),
        elsewhere=MUSE_GLIMMER,
    ),
    "nanbeige": Family("nanbeige", {"num_loops": 3}),
    "nanbeige_without_norms": Family("nanbeige", {"num_loops": 2, "skip_loop_final_norm": True}),
    "nanochat": Family("nanochat", {"head_dim": 16, "final_logit_softcapping": 3.0}),
    "nemotron": Family(
        "nemotron", {**PARTIAL, "norm_eps": 0.03, "attention_bias": True, "mlp_bias": True}
    ),
    "nemotron_nas": Family(
        "nemotron-nas",
        {"block_configs": _NAS_BLOCKS, "attention_bias": True, "mlp_bias": True},
    ),
    "decilm": Family("nemotron-nas", {"block_configs": _DECILM_BLOCKS}, elsewhere=DECILM),
    "olmo": Family("olmo", {"attention_bias": True}),
    "olmo_clip": Family("olmo", {"clip_qkv": 0.7}),
    "olmo2": Family("olmo2", {"attention_bias": True}),
    "olmo3": Family("olmo3", {**SLIDING, "rope_parameters": BY_LAYER_TYPE}),
    "openai_gpt": Family("openai-gpt", {**_GPT, "tie_word_embeddings": False}),
    # Without rotary positions, biases of keys add the same number to all scores of a query.
    "opt": Family("opt", {"ffn_dim": 136, "word_embed_proj_dim": 96}, frozenset({"k_proj.bias"})),
    "opt_350m": Family(
        "opt",
        {"ffn_dim": 136, "word_embed_proj_dim": 88, "do_layer_norm_before": False},
        frozenset({"k_proj.bias"}),
    ),
    "orion": Family(
        "stablelm", {"rope_parameters": rope(partial_rotary_factor=1.0)}, elsewhere=ORION
    ),
    "ouro": Family("ouro", {"total_ut_steps": 3}, _LLAMA_BIASES | _OURO_GATE),
    "pangu_embedded": Family(
        "llama", {"attention_bias": True}, _LLAMA_BIASES, elsewhere=PANGU_EMBEDDED
    ),
    "persimmon": Family("persimmon", PARTIAL),
    "phi": Family("phi", PARTIAL),
    "phi3": Family("phi3", {**PARTIAL, "sliding_window": WINDOW}),
    "phi3_long": Family("phi3", {"rope_parameters": _LONGROPE}),
    "plamo3": Family(
        "gemma3_text",
        {
            **SLIDING,
            "query_pre_attn_scalar": 20,
            "hidden_activation": "silu",
            "rope_parameters": {
                "sliding_attention": rope(),
                "full_attention": rope(rope_theta=1e6),
            },
        },
        elsewhere=PLAMO3,
    ),
    "qwen": Family("qwen2", {"num_key_value_heads": 6}, elsewhere=QWEN),
    "qwen2": Family("qwen2", {"use_sliding_window": True, **SLIDING}),
    "qwen3": Family("qwen3", {"use_sliding_window": True, "attention_bias": True, **SLIDING}),
    "seed_oss": Family("seed_oss", {"attention_out_bias": True, "mlp_bias": True}),
    "smollm3": Family("smollm3", {"no_rope_layers": [1, 0, 1, 1]}),
    "stablelm": Family("stablelm", {**PARTIAL, "use_qkv_bias": True}),
    "stablelm_first": Family("stablelm", PARTIAL, elsewhere=STABLELM_FIRST),
    "stablelm_norms": Family("stablelm", {"qk_layernorm": True}),
    "stablelm_parallel": Family("stablelm", {"use_parallel_residual": True}),
    "starcoder2": Family("starcoder2", {"sliding_window": WINDOW}),
    "telechat": Family("llama", _TELECHAT, _TELECHAT_UNUSED, elsewhere=TELECHAT),
    "telechat2": Family("llama", _TELECHAT, _TELECHAT_UNUSED, elsewhere=TELECHAT2),
    "telechat3": Family("llama", elsewhere=TELECHAT3),
    "teleflm": Family(
        "granite",
        {
            "attention_multiplier": 16**-0.5,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 2.5,
            "tie_word_embeddings": False,
        },
        elsewhere=TELEFLM,
    ),
    "vaultgemma": Family(
        "vaultgemma",
        {
            "query_pre_attn_scalar": 48,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            **SLIDING,
        },
    ),
    "xglm": Family(
        "xglm",
        {"d_model": 96, "num_layers": 4, "attention_heads": 6, "ffn_dim": 136},
        frozenset({"k_proj.bias"}),
    ),
    "xverse": Family("llama", elsewhere=XVERSE),
    "youtu": Family("youtu", {**LATENT, "attention_bias": True}, frozenset({"head_dim"})),
}
