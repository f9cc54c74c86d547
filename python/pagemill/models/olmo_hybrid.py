"""OLMo Hybrid: OLMo 3's attention in every fourth layer, without positions in released checkpoints;
the others have the gated delta rule, and their norms in front of the branches.

Weights as OLMo 2's in layers of attention; the others have `attention_layer_norm`, `linear_attn.*`
(`layers.gated_delta`), `feedforward_layer_norm` and `mlp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.gated_delta import DeltaShape, separate_delta_layer
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import (
    Renamed,
    flag,
    layer_types,
    positive_int,
    rope_parameters,
)
from pagemill.models.decoder import Decoder
from pagemill.models.state_space_keys import check_delta, check_silu
from pagemill.ops.trace import Tensor

_LINEAR, _FULL = "linear_attention", "full_attention"
_DELTA_NORM_EPS = 1e-5  # independent of rms_norm_eps


class OlmoHybridModel(Decoder):
    """One OLMo Hybrid model."""

    def __init__(self, config: Config) -> None:
        check_silu(config)
        rotates = _rotates(config)
        # Without positions the table is not used, nor what is stated of it.
        super().__init__(config if rotates else Renamed(config, {"rope_parameters": "none"}))
        layers = self.sizes.layers
        qk_norm = QkNorm(self.sizes.norm_eps, whole=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self._types = layer_types(config, layers, (_LINEAR, _FULL)) or tuple(
            _LINEAR if (layer + 1) % 4 else _FULL for layer in range(layers)
        )
        if not rotates:
            self.rotary = (None,) * layers
        self._delta = _read_delta(config, self.sizes.hidden_size, self.sizes.heads)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        if self._types[layer] == _LINEAR:
            y = self.norm(weights, f"{prefix}.attention_layer_norm", x)
            name = f"{prefix}.linear_attn"
            x = ops.add(x, separate_delta_layer(weights, name, y, self._delta, layer))
            y = self.norm(weights, f"{prefix}.feedforward_layer_norm", x)
            return ops.add(x, self.feed_forward(weights, layer, y))
        y = self.attention(weights, layer, x, rotary)
        name = f"{prefix}.post_attention_layernorm"
        if not weights.has(f"{name}.weight"):  # as transformers 5 writes it
            name = f"{prefix}.feedforward_layer_norm"
        x = ops.add(x, self.norm(weights, name, y))
        y = self.feed_forward(weights, layer, x)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))


def _rotates(config: Config) -> bool:
    """False if the configuration states that there are no positions."""
    rope = config.get("rope_parameters")
    return isinstance(rope, Mapping) and rope_parameters(config).get("rope_theta") is not None


def _read_delta(config: Config, hidden_size: int, heads: int) -> DeltaShape:
    groups = positive_int(config, "linear_num_key_heads", heads)
    keys = positive_int(config, "linear_key_head_dim", 3 * hidden_size // (4 * groups))
    return check_delta(
        DeltaShape(
            heads=positive_int(config, "linear_num_value_heads", heads),
            groups=groups,
            keys=keys,
            values=positive_int(config, "linear_value_head_dim", 2 * keys),
            taps=positive_int(config, "linear_conv_kernel_dim", 4),
            eps=_DELTA_NORM_EPS,
            share_scale=2.0 if flag(config, "linear_allow_neg_eigval", True) else 1.0,
        )
    )
