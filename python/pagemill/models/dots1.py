"""dots.llm1: Llama with norms on q and k, sliding windows on some layers, and DeepSeek V3's experts
in all but the first.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.gate`, its
`e_score_correction_bias`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import moe
from pagemill.models.base import Config
from pagemill.models.config_keys import number, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts
from pagemill.ops.trace import Tensor


class Dots1Model(Decoder):
    """One dots.llm1 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = replace(self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps))
        self.windows = windows_by_type(config, self.sizes.layers)
        self._dense_layers = number(config, "first_k_dense_replace", 0, least=0)
        self._experts = read_grouped_experts(
            config,
            self.activation,
            count=128,
            size=1408,
            shared=2,
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if layer < self._dense_layers:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
