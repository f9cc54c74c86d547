"""DeepSeek-V2 and V2-Lite: latent attention, and experts in place of most feed-forward layers.

Weights: `model.layers.<i>.{input_layernorm, self_attn.*, post_attention_layernorm}` (`self_attn` is
that of `layers.latent`); `mlp.{gate,up,down}_proj` in the first layers, in the others `mlp.gate`
(the router), `mlp.experts.<i>.{gate,up,down}_proj` and `mlp.shared_experts.{gate,up,down}_proj`;
`model.{embed_tokens,norm}`, `lm_head` unless tied.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.latent import LatentShape, latent_attention
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary, yarn_mscale
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    number,
    positive_int,
    read_routing,
    refuse,
    rope_parameters,
)
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_INNER_NORM_EPS = 1e-6  # of queries and latents, independent of rms_norm_eps


class DeepseekV2Model(Decoder):
    """One DeepSeek-V2 model."""

    def __init__(self, config: Config) -> None:
        # Implementations differ on whether weights that sum to 1 are multiplied by
        # routed_scaling_factor; no published checkpoint needs both.
        refuse(config, "norm_topk_prob")
        self._latent = _read_attention(config)
        super().__init__(config, rotary_dim=self._latent.rope)
        self.interleaved = True
        self._experts = _read_experts(config, self.activation)
        self._shared_experts = positive_int(config, "n_shared_experts", 2)
        self._dense_layers = number(config, "first_k_dense_replace", 0, least=0)
        if positive_int(config, "moe_layer_freq", 1) != 1:
            raise ModelConfigError("moe_layer_freq must be 1 in this family")

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name = f"{self.prefix(layer)}.self_attn"
        bias = self.attention_parts.bias
        return latent_attention(weights, name, x, self._latent, rotary, f"kv{layer}", bias=bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if layer < self._dense_layers:
            return super().feed_forward(weights, layer, x)
        prefix = f"{self.prefix(layer)}.mlp"
        shared = mlp(
            weights,
            f"{prefix}.shared_experts",
            x,
            self._experts.intermediate * self._shared_experts,
            self.activation,
            self.mlp_parts,
        )
        return ops.add(moe(weights, prefix, x, self._experts), shared)


def _read_attention(config: Config) -> LatentShape:
    nope = positive_int(config, "qk_nope_head_dim", 128)
    rope = positive_int(config, "qk_rope_head_dim", 64)
    # null: queries are projected from the hidden state; absent: the default.
    has_query_rank = config.get("q_lora_rank", 1536) is not None
    scale = (nope + rope) ** -0.5
    rotary = rope_parameters(config)
    if rotary.get("rope_type", "default") != "default":
        # The factor that YaRN omits from cosines and sines.
        weight = number(rotary, "mscale_all_dim", 0.0, least=0.0)
        scale *= yarn_mscale(number(rotary, "factor", 1.0), weight) ** 2 if weight else 1.0
    return LatentShape(
        heads=positive_int(config, "num_attention_heads"),
        nope=nope,
        rope=rope,
        value=positive_int(config, "v_head_dim", 128),
        latent=positive_int(config, "kv_lora_rank", 512),
        query=positive_int(config, "q_lora_rank", 1536) if has_query_rank else None,
        scale=scale,
        eps=_INNER_NORM_EPS,
    )


def _read_experts(config: Config, kind: ops.ActivationKind) -> Experts:
    count = positive_int(config, "n_routed_experts", 64)
    routing = read_routing(config, count, 6, renormalize=False)
    routing = replace(routing, scale=number(config, "routed_scaling_factor", 1.0))
    scoring = config.get("scoring_func") or "softmax"
    if scoring != "softmax":
        raise ModelConfigError(f"scoring_func {shown(scoring)} is not softmax")
    method = config.get("topk_method") or "greedy"
    if method == "group_limited_greedy":
        groups = positive_int(config, "n_group")
        chosen = positive_int(config, "topk_group")
        if count % groups or not routing.choices <= count // groups * chosen <= count:
            raise ModelConfigError(
                f"{routing.choices} of {count} experts cannot be chosen from {chosen} of {groups}"
                " groups"
            )
        routing = replace(routing, groups=groups, group_choices=chosen)
    elif method != "greedy":
        raise ModelConfigError(f"topk_method {shown(method)} is not greedy or group_limited_greedy")
    return Experts(count, positive_int(config, "moe_intermediate_size", 1407), kind, routing)
