"""Flint: Llama with norms on each head of q and k, sliding windows on some layers, full layers
without positions, sinks in all, and experts that a router of sigmoids chooses, beside a
feed-forward layer that every token has.

Weights as Llama's, plus `self_attn.{q,k}_norm` and `self_attn.softmax_offset`; in layers with
experts `mlp.gate`, `mlp.experts.<i>` and `mlp.shared_expert`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, positive_int, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_by_step
from pagemill.ops import Scoring


class FlintModel(Decoder):
    """One Flint model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = replace(
            self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps), sinks="softmax_offset"
        )
        self.windows = windows_by_type(config, self.sizes.layers)
        self.rotary = self.rotary_in_windows()
        count = expert_count(config, 256)
        renormalize = flag(config, "norm_topk_prob", True)
        routing = read_routing(config, count, 6, renormalize=renormalize)
        self.experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 512),
            self.activation,
            replace(routing, scoring=Scoring.SIGMOID),
            shared=positive_int(config, "shared_expert_intermediate_size", 1024),
            shared_name="shared_expert",
        )
        self.is_sparse = sparse_by_step(config, self.sizes.layers)
