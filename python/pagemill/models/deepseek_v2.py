"""DeepSeek-V2 and V2-Lite: latent attention, and experts in place of most feed-forward layers.

Weights: `model.layers.<i>.{input_layernorm, self_attn.*, post_attention_layernorm}` (`self_attn` is
that of `layers.latent`); `mlp.{gate,up,down}_proj` in the first layers, in the others `mlp.gate`
(the router), `mlp.experts.<i>.{gate,up,down}_proj` and `mlp.shared_experts.{gate,up,down}_proj`;
`model.{embed_tokens,norm}`, `lm_head` unless tied.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import Experts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import number, positive_int, refuse
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing, sparse_behind
from pagemill.models.latent_keys import read_latent
from pagemill.ops import ActivationKind
from pagemill.weights.json_file import shown


class DeepseekV2Model(Decoder):
    """One DeepSeek-V2 model."""

    def __init__(self, config: Config) -> None:
        # Implementations differ on whether weights that sum to 1 are multiplied by
        # routed_scaling_factor; no published checkpoint needs both.
        refuse(config, "norm_topk_prob")
        latent = read_latent(config)
        super().__init__(config, rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = True
        self.experts = _read_experts(config, self.activation, self.mlp_parts)
        self.is_sparse = sparse_behind(config, self.sizes.layers)
        if positive_int(config, "moe_layer_freq", 1) != 1:
            raise ModelConfigError("moe_layer_freq must be 1 in this family")


def _read_experts(config: Config, kind: ActivationKind, parts: MlpParts) -> Experts:
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
    size = positive_int(config, "moe_intermediate_size", 1407)
    shared = size * positive_int(config, "n_shared_experts", 2)
    return Experts(count, size, kind, routing, shared=shared, shared_parts=parts)
