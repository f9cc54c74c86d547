"""OLMo 3: OLMo 2 with sliding windows on three of four layers, whose rotary tables differ.

Weights as OLMo 2's.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import FULL, SLIDING, layer_count, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Olmo3Model(Decoder):
    """One OLMo 3 model."""

    def __init__(self, config: Config) -> None:
        layers = layer_count(config)
        windows = windows_by_type(config, layers, pattern=4)
        types = [SLIDING if window else FULL for window in windows]
        super().__init__(config, eps=("rms_norm_eps", 1e-5), layer_types=types)
        self.windows = windows
        qk_norm = QkNorm(self.sizes.norm_eps, whole=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.attention(weights, layer, x, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.feed_forward(weights, layer, x)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))
