"""Qwen3-MoE: Qwen3 with experts in place of most feed-forward layers.

Weights as Qwen3's, and in layers with experts `mlp.gate` (the router) and
`mlp.experts.<i>.{gate,up,down}_proj`, or one stacked tensor for all experts.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, positive_int, sliding_windows
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_by_step


class Qwen3MoeModel(Decoder):
    """One Qwen3-MoE model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = replace(self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps))
        self.windows = sliding_windows(config, self.sizes.layers)
        count = expert_count(config, 128)
        # The configuration of Qwen3-VL's language model does not state this.
        is_part = config.get("model_type") == "qwen3_vl_moe_text"
        self.experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 768),
            self.activation,
            read_routing(config, count, 8, renormalize=flag(config, "norm_topk_prob", is_part)),
        )
        self.is_sparse = sparse_by_step(config, self.sizes.layers)
