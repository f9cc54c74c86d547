"""K-EXAONE (`ExaoneMoeForCausalLM`): Llama with norms on each head of q and k, sliding windows,
full layers without positions, and DeepSeek V3's experts.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.gate`,
`mlp.e_score_correction_bias`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.moe import Experts, moe
from pagemill.models.base import Config
from pagemill.models.config_keys import (
    positive_int,
    read_grouped_routing,
    sparse_layers,
    windows_by_type,
)
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class ExaoneMoeModel(Decoder):
    """One K-EXAONE model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = AttentionParts(qk_norm=QkNorm(self.sizes.norm_eps))
        self.windows = windows_by_type(config, self.sizes.layers, pattern=4)
        self.rotary = [
            table if window else None
            for table, window in zip(self.rotary, self.windows, strict=True)
        ]
        self._is_sparse = sparse_layers(config, self.sizes.layers, dense=1)
        count = positive_int(config, "num_experts", 64)
        size = positive_int(config, "moe_intermediate_size", 1024)
        self._experts = Experts(
            count,
            size,
            self.activation,
            read_grouped_routing(config, count),
            bias="e_score_correction_bias",
            shared=size * positive_int(config, "num_shared_experts", 1),
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self._is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
