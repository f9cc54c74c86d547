"""A GGUF architecture as a family of models, and what several have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagemill.weights.gguf_reader import GgufReader

Config = dict[str, Any]

LAYER_NORM = "attention.layer_norm_epsilon"
BIAS = {"attention_bias": "attn_q.bias"}
INTERLEAVED = {"rope_interleaved": True}  # rows of q and k are permuted
ONE_OFF = {"norm_weight_offset": 0.0}  # it is in the weights
APART = {"gate_and_up_fused": False}
EXPERTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
EXPERT_SIZE = {"moe_intermediate_size": "expert_feed_forward_length"}
SHARED_SIZE = {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"}
GRANITE = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
BALANCED = {
    **EXPERTS,
    **EXPERT_SIZE,
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "first_k_dense_replace": "leading_dense_block_count",
}


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """A row: the names in a config.json, of which the first is taken unless `more` says otherwise.

    `keys` are copied from these keys of the metadata if they are there; `flags` are true if some
    layer has the tensor; `fixed` is what all files of the architecture have and do not state;
    `more` computes what is left. Without `attention`, no layer has one.
    """

    architectures: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    more: Callable[[GgufReader, Config], Config] | None = None
    attention: bool = True
