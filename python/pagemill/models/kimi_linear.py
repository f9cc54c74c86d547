"""Kimi Linear: the gated delta rule with a decay for each key, every fourth layer with latent
attention without positions instead, and DeepSeek V3's experts.

Weights: DeepSeek V3's attention, or `self_attn.*` of `layers.gated_delta`; in layers with experts
`block_sparse_moe.{gate, gate.e_score_correction_bias, experts.<i>.{w1,w3,w2}, shared_experts}`,
otherwise `mlp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from pagemill.layers.base import Weights
from pagemill.layers.gated_delta import DeltaShape, kimi_delta_layer
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    Defaults,
    Renamed,
    layer_numbers,
    layer_types,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.latent_keys import read_latent
from pagemill.models.state_space_keys import check_silu
from pagemill.ops.trace import Tensor

_LINEAR, _FULL = "linear_attention", "full_attention"
# Names of the keys in these configurations.
_NAMES = {
    "max_position_embeddings": "model_max_length",
    "n_group": "num_expert_group",
    "norm_topk_prob": "moe_renormalize",
    "num_experts_per_tok": "num_experts_per_token",
}
_EXPERTS = "block_sparse_moe"


class KimiLinearModel(Decoder):
    """One Kimi Linear model."""

    def __init__(self, config: Config) -> None:
        check_silu(config)
        names = {key: name for key, name in _NAMES.items() if config.get(name) is not None}
        config = Defaults(Renamed(config, names), {"q_lora_rank": None})
        latent = read_latent(config)
        super().__init__(config, eps=("rms_norm_eps", 1e-5), rotary_dim=latent.rope)
        self.latent = latent
        layers = self.sizes.layers
        self.rotary = (None,) * layers
        linear = _linear_section(config)
        self._types = _read_types(config, linear, layers)
        self._delta = _read_delta(config, linear, self.sizes.norm_eps)
        dense = int(number(config, "first_k_dense_replace", 1, least=0))
        self._sparse = sparse_layers(config, layers, dense=dense)
        self._experts = replace(
            read_grouped_experts(
                config,
                self.activation,
                count=256,
                size=1024,
                count_key="num_experts",
                shared_key="num_shared_experts",
            ),
            gate="w1",
            up="w3",
            down="w2",
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if self._types[layer] == _LINEAR:
            name = f"{self.prefix(layer)}.self_attn"
            return kimi_delta_layer(weights, name, x, self._delta, layer)
        return super().attention(weights, layer, x, rotary)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = self.prefix(layer)
        if self._sparse[layer]:
            return moe(weights, f"{prefix}.{_EXPERTS}", x, self._experts)
        name = f"{prefix}.mlp"
        if not weights.has(f"{name}.down_proj.weight"):  # as transformers 5 writes it
            name = f"{prefix}.{_EXPERTS}"
        return mlp(weights, name, x, self.sizes.intermediate_size, self.activation, MlpParts())


def _linear_section(config: Config) -> Config:
    """What published checkpoints say of layers with the delta rule."""
    section = config.get("linear_attn_config")
    if section is not None and not isinstance(section, Mapping):
        raise ModelConfigError("the configuration needs linear_attn_config to be an object")
    return cast("Config", section or {})


def _read_types(config: Config, linear: Config, layers: int) -> tuple[str, ...]:
    types = layer_types(config, layers, (_LINEAR, _FULL))
    if types is not None:
        return types
    if "full_attn_layers" not in linear:
        return tuple(_FULL if layer and layer % 4 == 0 else _LINEAR for layer in range(layers))
    full = layer_numbers(linear, "full_attn_layers")  # from 1
    return tuple(_FULL if layer + 1 in full else _LINEAR for layer in range(layers))


def _read_delta(config: Config, linear: Config, eps: float) -> DeltaShape:
    def size(name: str, key: str, default: int) -> int:
        return positive_int(linear, name, positive_int(config, key, default))

    heads, dim = size("num_heads", "linear_num_heads", 32), size("head_dim", "linear_head_dim", 128)
    taps = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4)
    return DeltaShape(heads, heads, dim, dim, taps, eps)
