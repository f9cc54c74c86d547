"""Mistral 4: DeepSeek V3 with queries that are scaled by their position, and a router of softmax.

Weights as DeepSeek-V3's, or stacks of all experts, without `mlp.gate.e_score_correction_bias`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import QueryGrowth
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import flag, number, positive_int, rope_parameters
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_behind
from pagemill.models.latent_keys import read_latent
from pagemill.ops import Scoring


class Mistral4Model(Decoder):
    """One Mistral 4 model."""

    def __init__(self, config: Config) -> None:
        latent, rope = read_latent(config), rope_parameters(config)
        # What rotates may be stated as a share of whole heads.
        whole = latent.nope if rope.get("partial_rotary_factor") is not None else 0
        super().__init__(config, rotary_dim=whole + latent.rope)
        if any(table and 2 * len(table.inv_freq) != latent.rope for table in self.rotary):
            raise ModelConfigError(
                f"partial_rotary_factor must be the share of qk_rope_head_dim, {latent.rope}, in"
                f" heads of {latent.nope + latent.rope}"
            )
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        beta = number(rope, "llama_4_scaling_beta", 0.0)
        if beta:
            context = positive_int(rope, "original_max_position_embeddings")
            latent = replace(latent, growth=QueryGrowth(beta, context))
        self.latent = latent
        self.is_sparse = sparse_behind(config, self.sizes.layers)
        experts = read_grouped_experts(config, self.activation, count=128, size=2048)
        routing = replace(experts.routing, scoring=Scoring.SOFTMAX)
        self.experts = replace(experts, bias=None, routing=routing)
