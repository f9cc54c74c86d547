"""GLM-4.7-Flash (`Glm4MoeLiteForCausalLM`): DeepSeek V3's latent attention and experts.

Weights as DeepSeek-V3's.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.latent import latent_attention
from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP
from pagemill.ops.trace import Tensor


class Glm4MoeLiteModel(Decoder):
    """One GLM-4.7-Flash model."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        self._latent = read_latent(config)
        super().__init__(config, eps=("rms_norm_eps", 1e-5), rotary_dim=self._latent.rope)
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        self._is_sparse = sparse_layers(config, self.sizes.layers, dense=1)
        self._experts = read_grouped_experts(config, self.activation, count=64, size=1536)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name = f"{self.prefix(layer)}.self_attn"
        bias = self.attention_parts.bias
        return latent_attention(weights, name, x, self._latent, rotary, f"kv{layer}", bias=bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self._is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
