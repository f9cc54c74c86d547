"""MiMo V2: scaled values, narrower than keys; windows, in layers with twice the KV heads and a sink
in each softmax; and experts in all but the first layer.

Weights as Llama's; in sliding layers `self_attn.attention_sink_bias`; in layers with experts
`mlp.gate`, its `e_score_correction_bias`, and `mlp.experts.<i>`; `model.mtp` has the layers of a
draft head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import rotary_attention
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    Renamed,
    as_list,
    flag,
    layer_count,
    layer_types,
    number,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_routing, sparse_layers
from pagemill.models.mtp_layer import MIMO_V2_MTP
from pagemill.ops.trace import Tensor

_PUBLISHED = {"rms_norm_eps": "layernorm_epsilon"}


class MiMoV2Model(Decoder):
    """One MiMo V2 model."""

    mtp = MIMO_V2_MTP
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.mtp\..*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        refuse(config, "add_full_attention_sink_bias", "n_shared_experts")
        if "layernorm_epsilon" in config:
            config = Renamed(config, _PUBLISHED)
        types, sparse = _layer_types(config), _sparse_layers(config)
        defaults = {"rope_parameters": _rope(config), "head_dim": 192}
        super().__init__(Defaults(config, defaults), eps=("rms_norm_eps", 1e-5), layer_types=types)
        self.attention_parts = replace(
            self.attention_parts,
            output_bias=False,
            value_scale=number(config, "attention_value_scale", 1.0),
        )
        heads, dim = self.sizes.heads, self.sizes.head_dim
        value_dim = positive_int(config, "v_head_dim", 128)
        kv_heads = positive_int(config, "swa_num_key_value_heads", 2 * self.sizes.kv_heads)
        if value_dim > dim or heads % kv_heads:
            raise ModelConfigError(
                f"v_head_dim={value_dim} must be at most head_dim={dim}, and {kv_heads} key-value"
                f" heads of sliding layers must divide {heads}"
            )
        same = {"swa_num_attention_heads": heads, "swa_head_dim": dim, "swa_v_head_dim": value_dim}
        for key, value in same.items():
            if config.get(key) not in (None, value):
                raise ModelConfigError(f"{key} must be {value}, as in full layers")
        full = replace(self.sizes.attention(), value_dim=value_dim)
        self._shapes = {
            FULL: full,
            SLIDING: replace(full, kv_heads=kv_heads, window=_window(config)),
        }
        self._sinks = flag(config, "add_swa_attention_sink_bias", True)
        self._types, self.is_sparse = types, sparse
        count = positive_int(config, "n_routed_experts", 256)
        self.experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 2048),
            self.activation,
            read_grouped_routing(config, count),
            bias="gate.e_score_correction_bias",
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        kind, parts = self._types[layer], self.attention_parts
        if kind == SLIDING and self._sinks:
            parts = replace(parts, sinks="attention_sink_bias")
        name, shape = f"{self.prefix(layer)}.self_attn", self._shapes[kind]
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", parts)


def _layer_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer: listed, as names or, in published files, as 1 for sliding; by default
    the first is full, and every sixth."""
    layers, pattern = layer_count(config), "hybrid_layer_pattern"
    if config.get("layer_types") is None and config.get(pattern) is not None:
        return tuple(SLIDING if one else FULL for one in _flags(config, pattern, layers))
    types = layer_types(config, layers, (SLIDING, FULL))
    return types or tuple(FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(layers))


def _sparse_layers(config: Config) -> list[bool]:
    """Whether each layer has experts: as `_layer_types`; by default all but the first have them."""
    layers, key = layer_count(config), "moe_layer_freq"
    if config.get("mlp_layer_types") is None and config.get(key) is not None:
        return _flags(config, key, layers)
    return sparse_layers(config, layers, dense=1)


def _flags(config: Config, key: str, layers: int) -> list[bool]:
    listed = as_list(config[key]) or []
    if len(listed) != layers or any(entry not in (0, 1) for entry in listed):
        raise ModelConfigError(f"{key} must list {layers} layers, 0 or 1 for each")
    return [entry == 1 for entry in listed]


def _rope(config: Config) -> dict[str, Config]:
    """The rotary parameters of each kind of layer, of files that have no `rope_parameters`."""
    share = number(config, "partial_rotary_factor", 0.334, least=0.0, most=1.0)
    bases = {FULL: ("rope_theta", 5e6), SLIDING: ("swa_rope_theta", 1e4)}
    return {
        kind: {
            "rope_type": "default",
            "rope_theta": config.get(key, base),
            "partial_rotary_factor": share,
        }
        for kind, (key, base) in bases.items()
    }


def _window(config: Config) -> int:
    """The tokens that a sliding layer sees: `sliding_window_size` before the query, or
    `sliding_window` with it."""
    if config.get("sliding_window_size") is not None:
        return positive_int(config, "sliding_window_size") + 1
    return positive_int(config, "sliding_window", 129)
