"""Hy3 (`HYV3ForCausalLM`): Llama with norms on each head of q and k, and experts that a router of
sigmoids chooses, beside a feed-forward layer that every token has.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.router.gate`,
`mlp.expert_bias`, `mlp.experts.<i>` and `mlp.shared_mlp`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_layers
from pagemill.models.mtp_layer import HY_MTP
from pagemill.ops import Scoring


class HyV3Model(Decoder):
    """One Hy3 model."""

    mtp = HY_MTP

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        qk_norm = QkNorm(self.sizes.norm_eps)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self.is_sparse = sparse_layers(config, self.sizes.layers, dense=1)
        count = expert_count(config, 192)
        size = positive_int(config, "moe_intermediate_size", 1536)
        routing = read_routing(config, count, 8, renormalize=True)
        self.experts = Experts(
            count,
            size,
            self.activation,
            replace(
                routing,
                scoring=Scoring.SIGMOID,
                scale=number(config, "router_scaling_factor", 2.826),
            ),
            router="router.gate",
            bias="expert_bias",
            shared=size * positive_int(config, "num_shared_experts", 1),
            shared_name="shared_mlp",
        )
