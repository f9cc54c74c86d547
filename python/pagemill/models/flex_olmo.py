"""FlexOlmo: OLMo 2 with experts.

Weights as OLMo 2's, with `mlp.gate` (the router) and `mlp.experts.<i>.{gate,up,down}_proj`, or one
stacked tensor for all experts.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing
from pagemill.ops.trace import Tensor


class FlexOlmoModel(Decoder):
    """One FlexOlmo model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        qk_norm = QkNorm(self.sizes.norm_eps, whole=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        count = expert_count(config, 7)
        renormalize = flag(config, "norm_topk_prob", False)
        self.experts = Experts(
            count,
            self.sizes.intermediate_size,
            self.activation,
            read_routing(config, count, 5, renormalize=renormalize),
        )

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.attention(weights, layer, x, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.feed_forward(weights, layer, x)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))
