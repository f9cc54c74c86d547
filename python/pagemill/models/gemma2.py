"""Gemma 2: sliding and full attention layers in turn, bounded scores and logits, and a norm at the
end of each branch.

Weights as Llama's, plus `pre_feedforward_layernorm` and `post_feedforward_layernorm`; norm weights
are stored minus 1.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import activation, number, refuse, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Gemma2Model(Decoder):
    """One Gemma 2 model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "use_bidirectional_attention")
        super().__init__(config, tied_by_default=True)
        self.windows = windows_by_type(config, self.sizes.layers, pattern=2)
        self.attention_scale = number(config, "query_pre_attn_scalar", 256, least=1e-6) ** -0.5
        self.soft_cap = number(config, "attn_logit_softcapping", 0.0, least=0.0)
        self.logits_cap = number(config, "final_logit_softcapping", 0.0, least=0.0)
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = self.sizes.hidden_size**0.5  # as in Gemma

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))
