"""DeepSeek-V2 and V2-Lite: latent attention, and experts in place of most feed-forward layers.

Weights: `model.layers.<i>.{input_layernorm, self_attn.*, post_attention_layernorm}` (`self_attn` is
that of `layers.latent`); `mlp.{gate,up,down}_proj` in the first layers, in the others `mlp.gate`
(the router), `mlp.experts.<i>.{gate,up,down}_proj` and `mlp.shared_experts.{gate,up,down}_proj`;
`model.{embed_tokens,norm}`, `lm_head` unless tied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.layers import mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.latent import LatentShape, latent_attention
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary, bind_rotary, yarn_mscale
from pagemill.models import causal_lm
from pagemill.models.base import (
    IGNORED_IN_DECODERS,
    Config,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    DecoderSizes,
    activation,
    flag,
    make_rotary_table,
    number,
    positive_int,
    read_routing,
    refuse,
    rope_parameters,
)
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_INNER_NORM_EPS = 1e-6  # of queries and latents, independent of rms_norm_eps


class DeepseekV2Model:
    """One DeepSeek-V2 model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        # Implementations differ on whether weights that sum to 1 are multiplied by
        # routed_scaling_factor; no published checkpoint needs both.
        refuse(config, "norm_topk_prob")
        self._sizes = DecoderSizes.read(config, tied_by_default=False)
        self._attention = _read_attention(config, self._sizes.heads)
        self._rotary = make_rotary_table(config, self._attention.rope)
        self._activation = activation(config, "hidden_act", "silu")
        self._attention_bias = flag(config, "attention_bias", False)
        self._mlp_bias = flag(config, "mlp_bias", False)
        self._experts = _read_experts(config, self._activation)
        self._shared_experts = positive_int(config, "n_shared_experts", 2)
        self._dense_layers = number(config, "first_k_dense_replace", 0, least=0)
        if positive_int(config, "moe_layer_freq", 1) != 1:
            raise ModelConfigError("moe_layer_freq must be 1 in this family")

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = bind_rotary(weights, "inv_freq", self._rotary, inputs.positions, interleaved=True)
        return causal_lm.hidden(
            weights, inputs, self._sizes, lambda i, x: self._layer(weights, i, x, rotary)
        )

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return causal_lm.logits(weights, rows, self._sizes)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        prefix, eps = f"model.layers.{layer}", self._sizes.rms_norm_eps
        normed = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, eps)
        attended = latent_attention(
            weights,
            f"{prefix}.self_attn",
            normed,
            self._attention,
            rotary,
            f"kv{layer}",
            bias=self._attention_bias,
        )
        x = ops.add(x, attended)
        normed = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, eps)
        return ops.add(x, self._feed_forward(weights, layer, normed))

    def _feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"model.layers.{layer}.mlp"

        def dense(name: str, intermediate: int) -> Tensor:
            kind = self._activation
            return mlp.gated_mlp(weights, name, x, intermediate, kind, bias=self._mlp_bias)

        if layer < self._dense_layers:
            return dense(prefix, self._sizes.intermediate_size)
        shared = self._experts.intermediate * self._shared_experts
        routed = moe(weights, prefix, x, self._experts)
        return ops.add(routed, dense(f"{prefix}.shared_experts", shared))


def _read_attention(config: Config, heads: int) -> LatentShape:
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
        heads=heads,
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
