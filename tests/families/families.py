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
# Fields that are limits, or names of what else the checkpoint has.
NEUTRAL = frozenset(
    {
        "max_position_embeddings",
        "architectures",
        "bos_token_id",
        "eos_token_id",
        "n_positions",
        "num_nextn_predict_layers",
    }
)


@dataclass(frozen=True)
class Family:
    """A row. `model_type` is that of `transformers`, `changes` are fields of its configuration;
    `unused` are fields that all decoders have and this model has no use for, and ends of names of
    tensors that change nothing."""

    model_type: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unused: frozenset[str] = frozenset()


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
_LLAMA3 = _rope(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
_DEEPSEEK_EXPERTS = {
    "moe_intermediate_size": 24,
    "n_routed_experts": 6,  # of which each is chosen by some token
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
_GPT = {"n_embd": 96, "n_layer": 4, "n_head": 6, "n_positions": 4096}
_NEO_TYPES = [[["global", "local"], 2]]
_MIXER = {
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "shared_intermediate_size": 88,
    "num_local_experts": 0,
    "mamba_n_heads": 12,
    "mamba_d_head": 16,
    "mamba_d_state": 24,
    "mamba_chunk_size": 8,
}
_PARTIAL = {"rope_parameters": _rope(partial_rotary_factor=0.5)}

FAMILIES: Mapping[str, Family] = {
    "arcee": Family("arcee", {"attention_bias": True, "mlp_bias": True}),
    "cohere": Family("cohere", {"logit_scale": 0.3, "attention_bias": True}),
    "cohere2": Family("cohere2", {"logit_scale": 0.3, **_SLIDING}),
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
    "flex_olmo": Family("flex_olmo", {"num_experts": 5, "num_experts_per_tok": 2}),
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
    "gpt_bigcode": Family(
        "gpt_bigcode", {**_GPT, "n_inner": 136}, frozenset({"num_key_value_heads"})
    ),
    "gpt_neo": Family(
        "gpt_neo",
        {"num_layers": 4, "num_heads": 6, "window_size": WINDOW, "attention_types": _NEO_TYPES},
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
    "helium": Family("helium", {"head_dim": 16}),  # `transformers` has no others
    "hunyuan": Family("hunyuan_v1_dense", {"attention_bias": True}),
    "hyperclovax": Family("hyperclovax", _MULTIPLIERS),
    "jais2": Family("jais2"),
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
    "minimax_m2": Family("minimax_m2", _EXPERTS),
    "ministral": Family("ministral", _SLIDING),
    "mistral": Family("mistral", {"sliding_window": WINDOW}),
    "mixtral": Family("mixtral", {**_EXPERTS, "sliding_window": WINDOW}),
    "olmo": Family("olmo", {"attention_bias": True}),
    "olmo2": Family("olmo2", {"attention_bias": True}),
    "olmo3": Family("olmo3", {**_SLIDING, "rope_parameters": _BY_LAYER_TYPE}),
    "olmoe": Family("olmoe", {"num_experts": 5, "num_experts_per_tok": 2}),
    # Without rotary positions, biases of keys add the same number to all scores of a query.
    "opt": Family("opt", {"ffn_dim": 136, "word_embed_proj_dim": 96}, frozenset({"k_proj.bias"})),
    "phi": Family("phi", _PARTIAL),
    "phi3": Family("phi3", {**_PARTIAL, "sliding_window": WINDOW}),
    "qwen2": Family("qwen2", {"use_sliding_window": True, **_SLIDING}),
    "qwen2_moe": Family(
        "qwen2_moe",
        {
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "num_experts": 5,
            "num_experts_per_tok": 2,
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
}


def make(name: str, directory: Path, *, seed: int = 0) -> PreTrainedModel:
    """Save a checkpoint of the family `name` in f32; returns its reference."""
    torch.manual_seed(seed)
    family = FAMILIES[name]
    kind = CONFIG_MAPPING[family.model_type]
    known = kind().to_dict().keys()
    fields = {key: value for key, value in SIZES.items() if key in known} | dict(family.changes)
    made: object = AutoModelForCausalLM.from_config(kind(**fields), attn_implementation="eager")
    assert isinstance(made, PreTrainedModel)
    model = made.eval()
    randomize(model)
    model.save_pretrained(directory)
    return model


@torch.no_grad()
def randomize(model: PreTrainedModel) -> None:
    """Matrices keep the size of activations; norms and biases are not neutral; embeddings are large
    enough for the last token to matter to the next, but not so large that it would repeat."""
    tied = model.config.tie_word_embeddings
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if name.endswith("bias"):
            parameter.copy_(0.3 * noise)
        elif "embed" in name and not tied:
            parameter.copy_(noise)
        elif parameter.ndim == 1:  # norms: around what they are initialized to, 1 or Gemma's 0
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.05 * torch.randn_like(buffer))
