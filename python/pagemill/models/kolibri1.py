"""Kolibri 1: norms in front of and behind each branch and on each head of q and k, full layers
without positions, and a router of sigmoids, whose bias is added to logits.

Weights as Llama's, plus `self_attn.{q,k}_norm`, `post_attn_norm` and `post_ffn_norm`; for `mlp`
`mlp.gate`, `mlp.experts.<i>` and `mlp.shared_experts`, and `moe.router.expert_bias`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, choose, chosen_experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults, flag, positive_int, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing
from pagemill.ops import Scoring
from pagemill.ops.trace import Tensor


class Kolibri1Model(Decoder):
    """One Kolibri 1 model."""

    def __init__(self, config: Config) -> None:
        size = positive_int(config, "moe_intermediate_size", 512)
        super().__init__(Defaults(config, {"intermediate_size": size}))
        self.attention_parts = AttentionParts(qk_norm=QkNorm(self.sizes.norm_eps))
        if config.get("sliding_window") is not None:
            self.windows = windows_by_type(config, self.sizes.layers, pattern=5)
            self.rotary = self.rotary_in_windows()
        count = expert_count(config, 384)
        routing = read_routing(config, count, 6, renormalize=flag(config, "norm_topk_prob", False))
        self._experts = Experts(
            count,
            size,
            self.activation,
            replace(routing, scoring=Scoring.SIGMOID, logits_bias=True),
            shared=positive_int(config, "shared_expert_intermediate_size", 512),
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix, experts = self.prefix(layer), self._experts
        bias = weights.vector(f"{prefix}.moe.router.expert_bias", experts.count)
        chosen = choose(weights, f"{prefix}.mlp.gate", x, experts, bias)
        y = chosen_experts(weights, f"{prefix}.mlp", x, chosen, experts)
        shared = f"{prefix}.mlp.shared_experts"
        return ops.add(y, mlp(weights, shared, x, experts.shared, experts.kind))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attn_norm", y))
        y = self.norm(weights, f"{prefix}.post_attention_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_ffn_norm", y))
