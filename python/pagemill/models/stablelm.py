"""StableLM: Llama with layer norms, and rotary pairs on a part of each head.

Weights as Llama's; norms have biases.
"""

from __future__ import annotations

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, refuse
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class StableLmModel(Decoder):
    """One StableLM model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "qk_layernorm")
        super().__init__(config, eps=("layer_norm_eps", 1e-5))
        self.attention_parts = AttentionParts(bias=flag(config, "use_qkv_bias", False))
        self.parallel = flag(config, "use_parallel_residual", False)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, self.sizes.norm_eps)
