"""GLM-4-0414 (`Glm4ForCausalLM`): GLM-4 with norms in front of and behind each branch.

Weights as Llama's, with `mlp.gate_up_proj`, `post_self_attn_layernorm` and `post_mlp_layernorm`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Glm4Model(Decoder):
    """One GLM-4-0414 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1.5625e-7))
        self.mlp_parts = MlpParts(up=("gate_up_proj",))
        self.interleaved = True
        self.attention_parts = AttentionParts(bias=flag(config, "attention_bias", True))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_self_attn_layernorm", y))
        y = self.norm(weights, f"{prefix}.post_attention_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_mlp_layernorm", y))
