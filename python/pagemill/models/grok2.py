"""Grok-2: norms in front of and behind each branch, scores that are limited and then grow with the
logarithm of the position, and experts beside a feed-forward layer that every token has.

Weights: `model.layers.<i>.{pre_attn_norm,self_attn.{q,k,v,o}_proj,post_attn_norm,pre_moe_norm,
post_moe_norm}`, `block_sparse_moe.gate`, `block_sparse_moe.experts.<i>.{w1,w3,w2}` (gate, up, down)
and `mlp.{gate,up,down}_proj`; `model.{embed_tokens,norm}`, `lm_head`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import rotary_attention
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import activation, flag, number, positive_int, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import expert_count, read_routing
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


class Grok2Model(Decoder):
    """One Grok-2 model."""

    names = DecoderNames(attention_norm="pre_attn_norm", feed_forward_norm="pre_moe_norm")

    def __init__(self, config: Config) -> None:
        refuse(config, "rope_rotate_half_dims")
        if config.get("rope_type") not in (None, "original"):
            raise ModelConfigError(
                f"rope_type must be original, it is {shown(config['rope_type'])}"
            )
        if number(config, "sliding_window_size", -1) > 0:
            raise ModelConfigError(
                "sliding_window_size must be -1: all layers attend to everything"
            )
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.soft_cap = number(config, "attn_logit_softcapping", 30.0, least=0.0)
        self.embedding_scale = number(config, "embedding_multiplier_scale", 1.0)
        self.logits_scale = number(config, "output_multiplier_scale", 1.0)
        self.logits_cap = number(config, "final_logit_softcapping", 0.0, least=0.0)
        self.activation = activation(config, "hidden_act", "gelu_pytorch_tanh")
        self._grows_from = _grows_from(config)
        self._residual = flag(config, "residual_moe", False)
        count = expert_count(config, 8)
        self._experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", self.sizes.intermediate_size),
            self.activation,
            read_routing(config, count, 2, renormalize=False),
            gate="w1",
            up="w3",
            down="w2",
            logits_cap=number(config, "router_logit_softcapping", 30.0, least=0.0),
        )

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.pre_attn_norm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attn_norm", y))
        y = self.norm(weights, f"{prefix}.pre_moe_norm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_moe_norm", y))

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        shape = self.sizes.attention(soft_cap=self.soft_cap)
        shape = replace(shape, grows_from=self._grows_from)
        name = f"{self.prefix(layer)}.{self.names.attention}"
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", self.attention_parts)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        y = moe(weights, f"{self.prefix(layer)}.block_sparse_moe", x, self._experts)
        if not self._residual:
            return y
        return ops.scale(ops.add(super().feed_forward(weights, layer, x), y), 2**-0.5)


def _grows_from(config: Config) -> int:
    """The position after which scores grow, 0 for none."""
    length = config.get("attn_temperature_len", -1)
    if type(length) is not int or length == 1 or length >= 2**31:
        raise ModelConfigError(
            f"attn_temperature_len must be -1 or a position from 2, it is {shown(length)}"
        )
    return max(length, 0)
