"""DeepSeek-V3, R1 and Kimi K2: V2 with a router of sigmoids, whose bias balances the experts.

Weights as DeepSeek-V2's, plus `mlp.gate.e_score_correction_bias`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.latent import latent_attention
from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP
from pagemill.ops.trace import Tensor


class DeepseekV3Model(Decoder):
    """One DeepSeek-V3 model."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        self._latent = read_latent(config)
        super().__init__(config, rotary_dim=self._latent.rope)
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        self._dense_layers = number(config, "first_k_dense_replace", 3, least=0)
        self._experts = read_grouped_experts(
            config,
            self.activation,
            count=256,
            size=2048,
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name = f"{self.prefix(layer)}.self_attn"
        bias = self.attention_parts.bias
        return latent_attention(weights, name, x, self._latent, rotary, f"kv{layer}", bias=bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if layer < self._dense_layers:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
