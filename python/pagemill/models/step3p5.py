"""Step 3.5 and the text of Step 3.7: norms on queries and keys, a gate for each head, windows in
layers with a number of heads of their own, and experts beside a shared one in most layers, with
limits of activations in some.

Weights as Llama's, plus `self_attn.{q_norm,k_norm,g_proj}`; in layers with experts `mlp.gate`, its
`e_score_correction_bias`, stacks `mlp.experts` and `mlp.shared_experts`, which have other names in
published files (`weights.published_names`). Norms are offset by 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm, rotary_attention
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    as_list,
    flag,
    layer_count,
    layer_types,
    number,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.models.mtp_layer import STEP_MTP
from pagemill.models.step_keys import step_sparse_layers, with_other_names
from pagemill.ops import Scoring
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_NEEDED = {"use_moe_router_bias": True, "moe_router_activation": "sigmoid"}


class Step3p5Model(Decoder):
    """One Step 3.5 model."""

    mtp = STEP_MTP

    def __init__(self, config: Config) -> None:
        refuse(config, "use_bidirectional_attention")
        for key, value in _NEEDED.items():
            if config.get(key, value) != value:
                raise ModelConfigError(f"{key} must be {value}, it is {shown(config[key])}")
        config, layers = with_other_names(config), layer_count(config)
        listed = {"layer_types": _by_layer(config, "layer_types", layers)}
        types = layer_types(listed, layers, (SLIDING, FULL)) or (FULL,) * layers
        if config.get("rope_parameters") is None:
            config = Defaults(config, {"rope_parameters": _rope(config, types)})
        super().__init__(config, eps=("rms_norm_eps", 1e-5), layer_types=types)
        if not all(as_list(config.get("use_rope_layers")) or []):
            raise ModelConfigError("use_rope_layers must be true for all layers")
        window = positive_int(config, "sliding_window") if SLIDING in types else 0
        self.windows = [window if kind == SLIDING else 0 for kind in types]
        self.norm_offset = 1.0
        dim = self.sizes.head_dim
        scalar = number(config, "query_pre_attn_scalar", dim, least=1e-6)
        self.attention_scale = scalar**-0.5
        self.attention_parts = replace(
            self.attention_parts,
            qk_norm=QkNorm(self.sizes.norm_eps, offset=1.0),
            gate="g_proj" if flag(config, "use_head_wise_attn_gate", True) else None,
            gate_by_head=True,
        )
        self._sliding_heads = self._read_sliding_heads(config)
        self._limits = _limits(config, "swiglu_limits", layers)
        self._shared_limits = _limits(config, "swiglu_limits_shared", layers)
        self._sparse = step_sparse_layers(config, layers)
        count = positive_int(config, "n_routed_experts", 288)
        renormalize = flag(config, "norm_expert_weight", True)
        self._experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 1280),
            self.activation,
            replace(
                read_routing(config, count, 8, renormalize=renormalize),
                scoring=Scoring.SIGMOID,
                scale=number(config, "moe_router_scaling_factor", 1.0),
            ),
            bias="gate.e_score_correction_bias",
            shared=positive_int(config, "share_expert_dim", 1280),
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        shape = self.sizes.attention(scale=self.attention_scale, window=self.windows[layer])
        if shape.window:
            shape = replace(shape, heads=self._sliding_heads)
        name = f"{self.prefix(layer)}.self_attn"
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", self.attention_parts)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name, size = f"{self.prefix(layer)}.mlp", self.sizes.intermediate_size
        parts = replace(self.mlp_parts, limit=self._shared_limits[layer], limit_activated=True)
        if not self._sparse[layer]:
            return mlp(weights, name, x, size, self.activation, parts)
        limit = self._limits[layer]
        experts = replace(self._experts, shared_parts=parts, limit=limit, limit_activated=True)
        return moe(weights, name, x, experts)

    def _read_sliding_heads(self, config: Config) -> int:
        """The query heads of layers with a window."""
        sizes = self.sizes
        other = config.get("attention_other_setting")
        if other is not None and not isinstance(other, Mapping):
            raise ModelConfigError("attention_other_setting must be an object")
        setting = cast("Config", other or {})
        same = {
            "attention_type": SLIDING,
            "head_dim": sizes.head_dim,
            "num_attention_groups": sizes.kv_heads,
        }
        for key, value in same.items():
            if setting.get(key, value) != value:
                raise ModelConfigError(f"attention_other_setting: {key} must be {value}")
        by_other = positive_int(setting, "num_attention_heads", sizes.heads)
        heads = positive_int(config, "num_sliding_attention_heads", by_other)
        if heads % sizes.kv_heads:
            raise ModelConfigError(f"{heads} heads cannot share {sizes.kv_heads} key-value heads")
        return heads


def _by_layer(config: Config, key: str, layers: int) -> list[Any] | None:
    """What `key` lists for each layer; None if it is not a list. There may be entries of layers
    behind the last one."""
    entries = as_list(config.get(key))
    if entries is not None and len(entries) < layers:
        raise ModelConfigError(f"{key} must list {layers} layers, it lists {len(entries)}")
    return None if entries is None else entries[:layers]


def _rope(config: Config, types: Sequence[str]) -> dict[str, Config]:
    """The rotary parameters of each kind of layer, of published files."""
    scaling, scaled = config.get("rope_scaling"), as_list(config.get("yarn_only_types"))
    parameters: dict[str, Config] = {}
    for kind in dict.fromkeys(types):
        rope: dict[str, Any] = {"rope_type": "default"}
        if isinstance(scaling, dict) and (scaled is None or kind in scaled):
            rope |= cast("dict[str, Any]", scaling)
        rope["rope_theta"] = _of_kind(config, "rope_theta", 1e4, types, kind)
        share = _of_kind(config, "partial_rotary_factors", 1.0, types, kind)
        parameters[kind] = {**rope, "partial_rotary_factor": share}
    return parameters


def _of_kind(config: Config, key: str, default: float, types: Sequence[str], kind: str) -> float:
    """The number at `key`, or the one that it lists for each layer of this kind."""
    if (entries := _by_layer(config, key, len(types))) is None:
        return number(config, key, default)
    first, *others = [entry for entry, of in zip(entries, types, strict=True) if of == kind]
    if any(other != first for other in others):
        raise ModelConfigError(f"{key} must list one number for all layers of {kind}")
    return number({key: first}, key, default)


def _limits(config: Config, key: str, layers: int) -> list[float]:
    """The limit of each layer's activations, 0 for none."""
    entries = _by_layer(config, key, layers) or [None] * layers
    return [number({key: entry}, key, 0.0, least=0.0) for entry in entries]
