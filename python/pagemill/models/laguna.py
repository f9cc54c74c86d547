"""Laguna: norms on queries and keys, a number of heads of its own for each layer, a gate behind the
attention, windows, and a shared expert beside the others in all but the first layer.

Weights as Llama's, plus `self_attn.{q_norm,k_norm,g_proj}`; in layers with experts `mlp.gate`,
`mlp.experts.<i>`, `mlp.experts.e_score_correction_bias` and `mlp.shared_expert`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm, rotary_attention
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    as_list,
    layer_count,
    layer_types,
    number,
    positive_int,
    refuse,
    windows_by_type,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_layers
from pagemill.ops import ActivationKind, Scoring
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_ROPE = {
    FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
}


class LagunaModel(Decoder):
    """One Laguna model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "moe_apply_router_weight_on_input")
        layers = layer_count(config)
        types = layer_types(config, layers, (SLIDING, FULL)) or (FULL,) * layers
        defaults = {"rope_parameters": _ROPE, "head_dim": 128}
        super().__init__(Defaults(config, defaults), layer_types=types)
        self.windows = windows_by_type(config, layers)
        self.attention_parts = replace(
            self.attention_parts,
            qk_norm=QkNorm(self.sizes.norm_eps),
            gate="g_proj",
            gate_kind=ActivationKind.SOFTPLUS,
            gate_by_head=_gates_heads(config),
        )
        self._heads = self._read_heads(config)
        self.is_sparse = sparse_layers(config, layers, dense=1)
        count = expert_count(config, 256)
        routing = replace(
            read_routing(config, count, 8, renormalize=True),
            scoring=Scoring.SIGMOID,
            scale=number(config, "moe_routed_scaling_factor", 1.0),
        )
        self.experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 512),
            self.activation,
            routing,
            bias="experts.e_score_correction_bias",
            logits_cap=number(config, "moe_router_logit_softcapping", 0.0, least=0.0),
            shared=positive_int(config, "shared_expert_intermediate_size", 512),
            shared_name="shared_expert",
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        shape = self.sizes.attention(window=self.windows[layer])
        shape = replace(shape, heads=self._heads[layer])
        name = f"{self.prefix(layer)}.self_attn"
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", self.attention_parts)

    def _read_heads(self, config: Config) -> list[int]:
        """The query heads of each layer: listed, or as many in all."""
        key, layers = "num_attention_heads_per_layer", self.sizes.layers
        if config.get(key) is None:
            return [self.sizes.heads] * layers
        heads = [positive_int({key: count}, key) for count in as_list(config[key]) or []]
        if len(heads) != layers or any(count % self.sizes.kv_heads for count in heads):
            raise ModelConfigError(
                f"{key} must list {layers} layers, a multiple of {self.sizes.kv_heads} key-value"
                " heads for each"
            )
        return heads


def _gates_heads(config: Config) -> bool:
    """Whether the attention has a gate for each head, instead of one for each element."""
    gating = config.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise ModelConfigError(f"gating must be per-head or per-element, it is {shown(gating)}")
    return gating != "per-element"
