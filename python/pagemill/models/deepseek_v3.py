"""DeepSeek-V3, R1 and Kimi K2: V2 with a router of sigmoids, whose bias balances the experts.

Weights as DeepSeek-V2's, plus `mlp.gate.e_score_correction_bias`.
"""

from __future__ import annotations

from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_behind
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP


class DeepseekV3Model(Decoder):
    """One DeepSeek-V3 model."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(config, rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        self.is_sparse = sparse_behind(config, self.sizes.layers, dense=3)
        self.experts = read_grouped_experts(
            config,
            self.activation,
            count=256,
            size=2048,
        )
