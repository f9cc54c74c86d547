"""GLM-4.7-Flash (`Glm4MoeLiteForCausalLM`): DeepSeek V3's latent attention and experts.

Weights as DeepSeek-V3's.
"""

from __future__ import annotations

from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP


class Glm4MoeLiteModel(Decoder):
    """One GLM-4.7-Flash model."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(config, eps=("rms_norm_eps", 1e-5), rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        self.is_sparse = sparse_layers(config, self.sizes.layers, dense=1)
        self.experts = read_grouped_experts(config, self.activation, count=64, size=1536)
