"""Qwen2-MoE: Qwen2 with experts, and one that every token has, behind a gate.

Weights as Qwen2's, and in layers with experts `mlp.gate` (the router), `mlp.experts.<i>`,
`mlp.shared_expert` and `mlp.shared_expert_gate`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.moe import Experts, gated_expert, moe
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, positive_int, sliding_windows
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_by_step
from pagemill.ops.trace import Tensor


class Qwen2MoeModel(Decoder):
    """One Qwen2-MoE model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = AttentionParts(bias=flag(config, "qkv_bias", True))
        self.windows = sliding_windows(config, self.sizes.layers)
        count = expert_count(config, 60)
        self._experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 1408),
            self.activation,
            read_routing(config, count, 4, renormalize=flag(config, "norm_topk_prob", False)),
        )
        self._shared_size = positive_int(config, "shared_expert_intermediate_size", 5632)
        self._is_sparse = sparse_by_step(config, self.sizes.layers)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self._is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        name = f"{self.prefix(layer)}.mlp"
        shared = gated_expert(
            weights, f"{name}.shared_expert", x, self._shared_size, self.activation
        )
        return ops.add(moe(weights, name, x, self._experts), shared)
