"""Settings of DeepSeek-V4 that this family does not support are rejected by name."""

from __future__ import annotations

from typing import Any

import pytest

from pagemill.models.base import ModelConfigError
from pagemill.models.deepseek_v4 import DeepseekV4Model

ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.125}
CONFIG: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "max_position_embeddings": 512,
    "moe_intermediate_size": 48,
    "n_routed_experts": 12,
    "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"],
    "rope_parameters": {"main": ROPE, "compress": ROPE},
}


def test_defaults_are_those_of_the_published_models():
    DeepseekV4Model.from_config(CONFIG)
    DeepseekV4Model.from_config(CONFIG | {"mlp_layer_types": ["hash_moe", "moe"]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": None}, "layer_types is missing"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types must list 2 layers"),
        ({"mlp_layer_types": ["moe"]}, "mlp_layer_types must list 2 layers, hash_moe or moe"),
        ({"num_key_value_heads": 2}, "num_key_value_heads must be 1 in this family, not 2"),
        ({"o_groups": 3}, "8 heads do not make o_groups=3 groups"),
        ({"compress_rates": [4]}, "compress_rates must be numbers by kind, it is a list"),
        (
            {"compress_rates": {"heavily_compressed_attention": 100}},
            "heavily_compressed_attention must be a power of two of at most 4096, not 100",
        ),
        ({"index_head_dim": 32}, "index_head_dim must be at least 64, .* it is 32"),
        ({"hc_mult": 9}, "needs hc_mult from 1 to 8, it has 9"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax' is not sqrtsoftplus"),
        ({"norm_topk_prob": False}, "norm_topk_prob must be true"),
        ({"attention_bias": True}, "attention_bias=True"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str):
    with pytest.raises(ModelConfigError, match=message):
        DeepseekV4Model.from_config(CONFIG | changes)
