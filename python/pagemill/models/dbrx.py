"""DBRX: layer norms without biases, limits of q, k and v, and experts whose matrices lie one below
the other.

Weights: `transformer.blocks.<i>.norm_attn_norm.{norm_1,attn.Wqkv,attn.out_proj,norm_2}`,
`transformer.blocks.<i>.ffn.{router.layer,experts.mlp.{w1,v1,w2}}`, w2 transposed;
`transformer.{wte,norm_f}`, `lm_head`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.moe import Experts, choose, run_experts, sum_of_ranks
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, Renamed, activation, flag, number, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.ops.trace import Tensor

_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_seq_len",
}
_EPS = 1e-5


class DbrxModel(Decoder):
    """One DBRX model."""

    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.blocks",
        norm="transformer.norm_f",
        attention_norm="norm_attn_norm.norm_1",
        attention="norm_attn_norm.attn",
        feed_forward_norm="norm_attn_norm.norm_2",
        feed_forward="ffn",
    )

    def __init__(self, config: Config) -> None:
        attention, experts = _part(config, "attn_config"), _part(config, "ffn_config")
        size = positive_int(experts, "ffn_hidden_size", 3584)
        values = {
            "num_key_value_heads": positive_int(attention, "kv_n_heads", 1),
            "intermediate_size": size,
            "rope_theta": attention.get("rope_theta", 10000.0),
        }
        super().__init__(Defaults(Renamed(config, _KEYS), values))
        self.layer_norms = True
        self.norm_bias = False
        self.sizes = replace(self.sizes, norm_eps=_EPS)
        limit = number(attention, "clip_qkv", 0.0, least=0.0)
        self.attention_parts = AttentionParts(qkv=("Wqkv",), output="out_proj", limit=limit)
        self._turned = flag(config, "weights_transposed", True)
        power = experts.get("moe_normalize_expert_weights", 1.0)
        if power not in (None, 1):
            raise ModelConfigError("moe_normalize_expert_weights must be null or 1 in this family")
        count = positive_int(experts, "moe_num_experts", 4)
        routing = read_routing(
            Renamed(experts, {"num_experts_per_tok": "moe_top_k"}),
            count,
            1,
            renormalize=power is not None,
        )
        kind = activation(_part(experts, "ffn_act_fn"), "name", "silu")
        self._experts = Experts(count, size, kind, routing)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix, experts = f"{self.prefix(layer)}.ffn", self._experts
        chosen = choose(weights, f"{prefix}.router.layer", x, experts)
        name, count, inner = f"{prefix}.experts.mlp", experts.count, experts.intermediate
        own, part = weights.shard.experts(count), weights.shard.expert_features(inner)
        shape = (count, inner, x.width)
        wide = [weights.stack(name, up, shape, matrices=own, rows=part) for up in ("w1", "v1")]
        shape = (count, x.width, inner)
        if self._turned:
            down = weights.turned_stack(f"{name}.w2", shape, matrices=own, columns=part)
        else:
            down = weights.stack(name, "w2", shape, matrices=own, columns=part)
        return sum_of_ranks(weights, run_experts(x, chosen, wide, down, experts))


def _part(config: Config, key: str) -> Config:
    """The object at `key`; an empty one if it is absent or null."""
    value: object = config.get(key) or {}
    if not isinstance(value, Mapping):
        raise ModelConfigError(f"the configuration needs {key} to be an object")
    return cast("Mapping[str, Any]", value)
