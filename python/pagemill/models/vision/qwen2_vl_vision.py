"""Qwen2-VL's vision transformer: patches of images of any size to vectors of 2 x 2 patches each.

Weights: those of grid_vision.py, `blocks.<i>.{norm1, norm2, mlp.{fc1, fc2}}`, `merger.{ln_q, mlp.0,
mlp.2}`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import activation, positive_int
from pagemill.models.vision.grid_vision import EPS, GridVisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

Attend = Callable[[Weights, int, Tensor], Tensor]
"""The attention of a layer, by its number: [T, hidden] -> [T, hidden]."""
_MLP = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)


class Qwen2VlVisionTower(GridVisionTower):
    """One tower."""

    kinds = ("qwen2_vl_vision", "qwen2_vl")
    hidden_key = "embed_dim"
    width_key = "hidden_size"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._intermediate = self.hidden_size * positive_int(config, "mlp_ratio", 4)
        self._activation = activation(config, "hidden_act", "quick_gelu")

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x, _ = self.embed(weights, inputs)
        rotary = self.rotary(weights, inputs)
        attend = partial(self.attend, rotary=rotary)
        for layer in range(self.layers):
            x = self.layer(weights, layer, x, attend)
        x = norm.layer_norm(weights, "merger.ln_q", x, EPS)
        x = ops.select_rows(x, inputs.media.tokens, count=self.merge**2)
        x = linear(weights, "merger.mlp.0", x, (x.width,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(weights, "merger.mlp.2", x, (self.width,), bias=True)

    def layer(self, weights: Weights, layer: int, x: Tensor, attend: Attend) -> Tensor:
        """x [T, hidden] -> [T, hidden], by one layer."""
        prefix = f"blocks.{layer}"
        y = norm.layer_norm(weights, f"{prefix}.norm1", x, EPS)
        x = ops.add(x, attend(weights, layer, y))
        y = norm.layer_norm(weights, f"{prefix}.norm2", x, EPS)
        y = mlp(weights, f"{prefix}.mlp", y, self._intermediate, self._activation, _MLP)
        return ops.add(x, y)
