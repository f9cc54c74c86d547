"""EXAONE 4: norms behind the branches and on each head of q and k; full layers among sliding ones
have no positions.

Weights as Llama's, with `post_attention_layernorm`, `post_feedforward_layernorm` and
`self_attn.{q,k}_norm` for its norms.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Exaone4Model(Decoder):
    """One EXAONE 4 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = AttentionParts(qk_norm=QkNorm(self.sizes.norm_eps))
        if config.get("sliding_window") is None:
            return
        self.windows = windows_by_type(config, self.sizes.layers, pattern=4)
        self.rotary = self.rotary_in_windows()

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.attention(weights, layer, x, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.feed_forward(weights, layer, x)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))
