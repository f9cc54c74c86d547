"""MiMo V2: scaled values, narrower than keys; windows, in layers with twice the KV heads and a sink
in each softmax; and experts in all but the first layer.

Weights as Llama's; in sliding layers `self_attn.attention_sink_bias`; in layers with experts
`mlp.gate`, its `e_score_correction_bias`, and `mlp.experts.<i>`; `model.mtp` is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import rotary_attention
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    layer_types,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_routing, sparse_layers
from pagemill.ops.trace import Tensor

_ROTATED = 0.334  # of each head, by default
_ROPE = {
    FULL: {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": _ROTATED},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": _ROTATED},
}


class MiMoV2Model(Decoder):
    """One MiMo V2 model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.mtp\..*": "further tokens are not predicted",
    }

    def __init__(self, config: Config) -> None:
        types = _layer_types(config)
        rope = {"rope_parameters": _ROPE, "head_dim": 192}
        super().__init__(Defaults(config, rope), eps=("rms_norm_eps", 1e-5), layer_types=types)
        window = _window(config)
        self.windows = [window if kind == SLIDING else 0 for kind in types]
        self.attention_parts = replace(
            self.attention_parts,
            output_bias=False,
            value_scale=number(config, "attention_value_scale", 1.0),
        )
        self._value_dim = positive_int(config, "v_head_dim", 128)
        heads, kv_heads = self.sizes.heads, self.sizes.kv_heads
        if self._value_dim > self.sizes.head_dim:
            raise ModelConfigError(
                f"v_head_dim={self._value_dim} must be at most head_dim={self.sizes.head_dim}"
            )
        if any(self.windows) and heads % (2 * kv_heads):
            raise ModelConfigError(f"{heads} heads cannot share {2 * kv_heads} key-value heads")
        self._sparse = sparse_layers(config, self.sizes.layers, dense=1)
        count = positive_int(config, "n_routed_experts", 256)
        self._experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 2048),
            self.activation,
            read_grouped_routing(config, count),
            bias="gate.e_score_correction_bias",
        )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        window, parts = self.windows[layer], self.attention_parts
        shape = replace(self.sizes.attention(window=window), value_dim=self._value_dim)
        if window:
            shape = replace(shape, kv_heads=2 * shape.kv_heads)
            parts = replace(parts, sinks="attention_sink_bias")
        name = f"{self.prefix(layer)}.self_attn"
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", parts)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self._sparse[layer]:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)


def _layer_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer; by default the first is full, and every sixth."""
    layers = positive_int(config, "num_hidden_layers")
    types = layer_types(config, layers, (SLIDING, FULL))
    return types or tuple(FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(layers))


def _window(config: Config) -> int:
    """The tokens that a sliding layer sees: `sliding_window_size` before the query, or
    `sliding_window` with it."""
    if config.get("sliding_window_size") is not None:
        return positive_int(config, "sliding_window_size") + 1
    return positive_int(config, "sliding_window", 129)
