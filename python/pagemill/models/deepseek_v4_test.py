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


def test_what_is_published_is_read():
    DeepseekV4Model.from_config(CONFIG | {"mlp_layer_types": ["hash_moe", "moe"]})
    # As in config.json of the published checkpoints.
    published: dict[str, Any] = {
        "layer_types": None,
        "compress_ratios": [0, 4, 128],
        "num_hash_layers": 1,
        "rope_parameters": None,
        "qk_rope_head_dim": 64,
        "compress_rope_theta": 160000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 16,
            "original_max_position_embeddings": 65536,
            "beta_fast": 32,
            "beta_slow": 1,
        },
    }
    model = DeepseekV4Model.from_config(CONFIG | published)
    main, compress = model.rotary
    assert main is not None and compress is not None
    assert (len(main.inv_freq), len(compress.inv_freq)) == (32, 32)
    assert compress.mscale == 1 and compress.inv_freq[-1] < main.inv_freq[-1] / 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer_types": None, "compress_ratios": [0, 5]},
            "compress_ratios must list 0, 4 or 128 for each of 2 layers",
        ),
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
