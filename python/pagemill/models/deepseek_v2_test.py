"""Settings of DeepSeek-V2 that this family does not support are rejected by name."""

from __future__ import annotations

from typing import Any

import pytest

from pagemill.models.base import ModelConfigError
from pagemill.models.deepseek_v2 import DeepseekV2Model

CONFIG: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
}
GROUPS = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}


def test_what_is_published_is_read():
    DeepseekV2Model.from_config(CONFIG)
    DeepseekV2Model.from_config(CONFIG | GROUPS)
    # As in config.json of the published checkpoints.
    rope = {
        "type": "yarn",
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    }
    published = {"q_lora_rank": None, "moe_layer_freq": 1, "scoring_func": "softmax"}
    DeepseekV2Model.from_config(CONFIG | published | {"rope_scaling": rope})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_topk_prob": True}, "norm_topk_prob=True"),
        ({"scoring_func": "sigmoid"}, "scoring_func 'sigmoid' is not softmax"),
        ({"topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not greedy or group"),
        ({"moe_layer_freq": 2}, "moe_layer_freq must be 1"),
        ({"num_experts_per_tok": 13}, "13 of 12 experts cannot be chosen"),
        (GROUPS | {"n_group": 5}, "3 of 12 experts cannot be chosen from 2 of 5 groups"),
        (GROUPS | {"n_group": 12}, "3 of 12 experts cannot be chosen from 2 of 12 groups"),
        (GROUPS | {"topk_group": 5}, "3 of 12 experts cannot be chosen from 5 of 4 groups"),
        ({"kv_lora_rank": 0}, "kv_lora_rank > 0"),
        ({"rope_scaling": {"type": "yarn"}}, "needs 'original_max_position_embeddings'"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str):
    with pytest.raises(ModelConfigError, match=message):
        DeepseekV2Model.from_config(CONFIG | changes)
