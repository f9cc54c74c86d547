"""MiniMax-M2: Mixtral with norms on q and k, all heads together, and a router of sigmoids, whose
bias balances the experts.

Weights as Mixtral's, plus `self_attn.{q,k}_norm` and `block_sparse_moe.e_score_correction_bias`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.ops import Scoring


class MiniMaxM2Model(Decoder):
    """One MiniMax-M2 model."""

    names = DecoderNames(feed_forward="block_sparse_moe")

    def __init__(self, config: Config) -> None:
        # Older configurations state what rotates as a number of features.
        dim = positive_int(config, "rotary_dim") if "rotary_dim" in config else None
        super().__init__(config, rotary_dim=dim)
        self.attention_parts = AttentionParts(qk_norm=QkNorm(self.sizes.norm_eps, whole=True))
        count = positive_int(config, "num_local_experts", 256)
        routing = read_routing(config, count, 8, renormalize=True)
        self.experts = Experts(
            count,
            self.sizes.intermediate_size,
            self.activation,
            replace(routing, scoring=Scoring.SIGMOID),
            gate="w1",
            up="w3",
            down="w2",
            bias="e_score_correction_bias",
        )
