"""Solar Open: Llama with DeepSeek V3's experts in every layer.

Weights as Llama's; `mlp.gate`, its `e_score_correction_bias`, `mlp.experts.<i>` and
`mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.moe import Experts, moe
from pagemill.models.base import Config
from pagemill.models.config_keys import positive_int, read_grouped_routing
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class SolarOpenModel(Decoder):
    """One Solar Open model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = replace(self.attention_parts, output_bias=False)
        count = positive_int(config, "n_routed_experts", 128)
        size = positive_int(config, "moe_intermediate_size", 1280)
        self._experts = Experts(
            count,
            size,
            self.activation,
            read_grouped_routing(config, count),
            bias="gate.e_score_correction_bias",
            shared=size * positive_int(config, "n_shared_experts", 1),
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
