"""A row of the suite, the sizes of its models, and fields that rows have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.families.elsewhere import Elsewhere

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
        "max_seq_len",
        "model_max_length",
        "n_positions",
        "num_nextn_predict_layers",
        "seq_length",
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


def rope(**fields: Any) -> dict[str, Any]:
    """Rotary parameters."""
    return {"rope_type": "default", "rope_theta": 1e4, **fields}


BY_LAYER_TYPE = {
    "sliding_attention": rope(),
    "full_attention": rope(rope_type="linear", rope_theta=1e6, factor=8.0),
}
TYPES = ["sliding_attention", "full_attention"] * 2
SLIDING = {"sliding_window": WINDOW, "layer_types": TYPES}
MULTIPLIERS = {
    "attention_multiplier": 0.3,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.7,
}
SHARED_EXPERT = {
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 5,
    "num_experts_per_tok": 2,
}
DEEPSEEK_EXPERTS = {
    "moe_intermediate_size": 24,
    "n_routed_experts": 6,  # of which each is chosen by some token
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
LATENT = {
    "num_key_value_heads": 6,
    "head_dim": 10,
    "q_lora_rank": 48,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 10,
    "v_head_dim": 22,
}
PARTIAL = {"rope_parameters": rope(partial_rotary_factor=0.5)}
