"""OLMo 2: Llama with norms behind the branches, and on q and k, all heads together.

Weights as Llama's, with `post_attention_layernorm`, `post_feedforward_layernorm` and
`self_attn.{q,k}_norm` for its norms.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Olmo2Model(Decoder):
    """One OLMo 2 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        qk_norm = QkNorm(self.sizes.norm_eps, whole=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.attention(weights, layer, x, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.feed_forward(weights, layer, x)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))
