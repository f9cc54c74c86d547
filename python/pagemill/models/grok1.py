"""Grok-1: a norm in front of each branch and one behind it, limits of scores, and experts in all
layers, whose shares are those of a softmax over all.

Weights: `model.layers.<i>.{pre_attn_norm,attn.{q,k,v,o}_proj,post_attn_norm,pre_moe_norm,
post_moe_norm}`, `moe_block.gate` and `moe_block.experts.<i>.{linear,linear_v,linear_1}` (gate, up,
down); `model.{embed_tokens,norm}`, `lm_head` unless tied.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import activation, number, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import expert_count, read_routing
from pagemill.ops.trace import Tensor


class Grok1Model(Decoder):
    """One Grok-1 model."""

    names = DecoderNames(
        attention_norm="pre_attn_norm",
        attention="attn",
        feed_forward_norm="pre_moe_norm",
        feed_forward="moe_block",
    )

    def __init__(self, config: Config) -> None:
        # Of Grok-2, which is a family of its own.
        refuse(config, "residual_moe", "router_logit_softcapping", "attn_temperature_len")
        super().__init__(config, tied_by_default=True, eps=("rms_norm_eps", 1e-5))
        self.attention_scale = number(config, "attn_output_multiplier", 128**-0.5)
        self.soft_cap = number(config, "max_attn_value", 30.0, least=0.0)
        self.embedding_scale = number(config, "embedding_multiplier_scale", 6144**0.5)
        self.logits_scale = number(config, "output_multiplier_scale", 3**-0.5)
        count = expert_count(config, 8)
        self._experts = Experts(
            count,
            self.sizes.intermediate_size,
            activation(config, "hidden_act", "gelu_pytorch_tanh"),
            read_routing(config, count, 2, renormalize=False),
            gate="linear",
            up="linear_v",
            down="linear_1",
        )

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.pre_attn_norm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attn_norm", y))
        y = self.norm(weights, f"{prefix}.pre_moe_norm", x)
        y = moe(weights, f"{prefix}.moe_block", y, self._experts)
        return ops.add(x, self.norm(weights, f"{prefix}.post_moe_norm", y))
