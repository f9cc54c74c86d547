"""LFM3-VL's vision tower: layers that attend among the patches of an image, and more of them in
which gated depthwise convolutions read the patches around each.

Weights: `patchifier`, `embedding_norm`, and in layer i `layers.<i>.{operator_norm, ffn_norm,
feed_forward.{w1,w2,w3}}` and either `self_attn.{q,k,v,out}_proj` with `self_attn.{q,k}_layernorm`,
or `conv.{in_proj, spatial_conv, out_proj}`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    Defaults,
    epsilon,
    layer_count,
    layer_types,
    positive_int,
)
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.depthwise_conv import MAX_TAPS
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_CONV = "conv"
_MLP = MlpParts(up=("w1", "w3"), down="w2")
# Those of the configuration's class.
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 2560,
    "num_hidden_layers": 14,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "patch_size": 16,
    "conv_kernel_size": 3,
    "rope_parameters": {"rope_theta": 1e6},
}


class Lfm3VlVisionTower(GridVisionTower):
    """One tower. Its results are the vectors of all patches, not merged."""

    kinds = ("lfm3_vl_vision",)
    width_key = "hidden_size"

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        layers = layer_count(config)
        heads = positive_int(config, "num_attention_heads")
        kv_heads = positive_int(config, "num_key_value_heads")
        super().__init__(Defaults({"depth": layers, "num_heads": heads}, config))
        if heads % kv_heads:
            raise ModelConfigError(f"{heads} heads cannot share {kv_heads} of keys")
        self.shape = replace(self.shape, kv_heads=kv_heads)
        self._intermediate = positive_int(config, "intermediate_size")
        self._eps = epsilon(config, "norm_eps", 1e-5)
        self._side = positive_int(config, "conv_kernel_size")
        if self._side % 2 == 0 or self._side**2 > MAX_TAPS:
            raise ModelConfigError(
                f"conv_kernel_size must be odd, and at most {MAX_TAPS} taps, it is {self._side}"
            )
        # By default, of two layers the second is full, except in the first two.
        default = tuple(_CONV if i < 2 or i % 2 else FULL for i in range(layers))
        self._types = layer_types(config, layers, (_CONV, FULL)) or default

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden]."""
        x = linear(weights, "patchifier", inputs.media.rows, (self.hidden_size,))
        x = norm.rms_norm(weights, "embedding_norm", x, self._eps)
        rotary = self.rotary(weights, inputs)
        for layer, kind in enumerate(self._types):
            prefix = f"layers.{layer}"
            y = norm.rms_norm(weights, f"{prefix}.operator_norm", x, self._eps)
            if kind == _CONV:
                y = self._convolved(weights, f"{prefix}.conv", y)
            else:
                y = self._attended(weights, f"{prefix}.self_attn", y, rotary)
            x = ops.add(x, y)
            y = norm.rms_norm(weights, f"{prefix}.ffn_norm", x, self._eps)
            y = mlp(
                weights,
                f"{prefix}.feed_forward",
                y,
                self._intermediate,
                ActivationKind.SILU,
                _MLP,
            )
            x = ops.add(x, y)
        return x

    def _attended(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        shape = self.shape
        q, k, v = (
            linear(weights, f"{prefix}.{part}_proj", x, (heads, shape.head_dim))
            for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads))
        )
        q = norm.rms_norm(weights, f"{prefix}.q_layernorm", q, self._eps)
        k = norm.rms_norm(weights, f"{prefix}.k_layernorm", k, self._eps)
        y = attention.attend_both_ways(*rotary(q, k), v, shape)
        return linear(weights, f"{prefix}.out_proj", y, (self.hidden_size,))

    def _convolved(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        width, side, identity = self.hidden_size, self._side, ActivationKind.IDENTITY
        before, behind, y = (
            linear(
                weights,
                f"{prefix}.in_proj",
                x,
                (width,),
                rows=Part(index * width, (index + 1) * width, 3 * width),
            )
            for index in range(3)
        )
        taps = weights.small(f"{prefix}.spatial_conv.weight", (width, 1, side, side))
        y = ops.gated_activation(before, y, identity)
        y = ops.depthwise_conv(y, taps, None, grid=True)
        y = ops.gated_activation(behind, y, identity)
        return linear(weights, f"{prefix}.out_proj", y, (width,))
