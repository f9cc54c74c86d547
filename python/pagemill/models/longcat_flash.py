"""LongCat-Flash: two attentions and two feed-forward layers a layer, with latents as DeepSeek V3's;
experts beside them, some of which return what they read.

Weights: `model.layers.<i>.{input_layernorm,post_attention_layernorm,self_attn,mlps}.<0 or 1>`
(`self_attn` is that of `layers.latent`), `mlp.router.{classifier,e_score_correction_bias}` and
`mlp.experts.<i>.{gate,up,down}_proj`; `model.{embed_tokens,norm}`, `lm_head`; `model.mtp` has the
layer of a draft head.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.latent import latent_attention
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, chosen_experts
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import EXPERTS, name_in_layer
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed, number, positive_int, refuse
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import LONGCAT_MTP
from pagemill.ops.trace import Tensor

_KEYS = {
    "num_hidden_layers": "num_layers",
    "intermediate_size": "ffn_hidden_size",
    "num_experts_per_tok": "moe_topk",
}
_MAX_IDLE = 4096


class LongcatFlashModel(Decoder):
    """One LongCat-Flash model."""

    mtp = LONGCAT_MTP

    def __init__(self, config: Config) -> None:
        config = Renamed(config, _KEYS)
        refuse(config, "router_bias")
        latent = read_latent(config)
        super().__init__(config, eps=("rms_norm_eps", 1e-5), rotary_dim=latent.rope)
        self.interleaved = True
        hidden, query = self.sizes.hidden_size, latent.query or self.sizes.hidden_size
        self._latent = replace(
            latent,
            query_scale=(hidden / query) ** 0.5,
            latent_scale=(hidden / latent.latent) ** 0.5,
        )
        count = positive_int(config, "n_routed_experts", 512)
        self._idle = int(number(config, "zero_expert_num", 256, least=0, most=_MAX_IDLE))
        routing = read_routing(config, count + self._idle, 12, renormalize=False)
        self._experts = Experts(
            count,
            positive_int(config, "expert_ffn_hidden_size", 2048),
            self.activation,
            replace(routing, scale=number(config, "routed_scaling_factor", 6.0)),
        )
        numbers = "|".join(str(count + i) for i in range(self._idle))
        self.ignored = {
            **self.ignored,
            rf"model\.layers\.\d+\.mlp\.experts\.({numbers})\..*": "these experts compute nothing",
            r"model\.mtp\..*": "drafts alone use it (mtp)",
        }

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        beside = None
        for half in (0, 1):
            y = self.norm(weights, f"{prefix}.input_layernorm.{half}", x)
            name, cache = f"{prefix}.self_attn.{half}", f"kv{2 * layer + half}"
            bias = self.attention_parts.bias
            y = latent_attention(weights, name, y, self._latent, rotary, cache, bias=bias)
            x = ops.add(x, y)
            y = self.norm(weights, f"{prefix}.post_attention_layernorm.{half}", x)
            beside = beside or self._moe(weights, f"{prefix}.mlp", y)
            size, name = self.sizes.intermediate_size, f"{prefix}.mlps.{half}"
            x = ops.add(x, mlp(weights, name, y, size, self.activation))
        assert beside is not None
        return ops.add(x, beside)

    def mtp_layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """One attention and one feed-forward layer, without experts."""
        prefix, bias = self.prefix(layer), self.attention_parts.bias
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        name = f"{prefix}.self_attn"
        y = latent_attention(weights, name, y, self._latent, rotary, f"kv{layer}", bias=bias)
        x = ops.add(x, y)
        y = self.norm(weights, f"{prefix}.post_attention_layernorm", x)
        size, name = self.sizes.intermediate_size, f"{prefix}.transformer_layer.mlp"
        return ops.add(x, mlp(weights, name, y, size, self.activation))

    def _moe(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        """x [N, H] -> the weighted sum of each row's experts, of which the last are x itself."""
        experts, total = self._experts, self._experts.count + self._idle
        logits = linear(weights, f"{prefix}.router.classifier", x, (total,), dtype="f32")
        bias = weights.vector(f"{prefix}.router.e_score_correction_bias", total)
        first = weights.shard.experts(experts.count).begin
        ids, shares = ops.moe_route(logits, experts.routing, bias, first=first)
        # Ids behind the experts' choose no matrix, which gives zero.
        chosen = name_in_layer(ids, EXPERTS), shares
        y = chosen_experts(weights, prefix, x, chosen, experts)
        is_idle = weights.constant("idle_experts", [0.0] * experts.count + [1.0] * self._idle)
        _, shares = ops.moe_route(logits, experts.routing, bias, is_idle)
        return ops.add(y, ops.moe_combine(x, shares))
