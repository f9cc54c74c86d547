"""The vision transformers of Qwen2.5-VL and EXAONE 4.5: most layers attend within windows of the
image.

Weights: those of grid_vision.py, `blocks.<i>.{norm1, norm2, mlp.{gate,up,down}_proj}`,
`merger.{ln_q, mlp.0, mlp.2}`; norms have no biases.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, activation, layer_numbers, positive_int
from pagemill.models.vision.grid_vision import EPS, GridVisionTower
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

# Those of the configuration's class.
_DEFAULTS = {"fullatt_block_indexes": [7, 15, 23, 31], "window_size": 112}


class Qwen25VlVisionTower(GridVisionTower):
    """One tower."""

    kinds = ("qwen2_5_vl_vision", "qwen2_5_vl")

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        super().__init__(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "silu")
        self._full_layers = layer_numbers(config, "fullatt_block_indexes")
        pixels, square = positive_int(config, "window_size"), self.patch * self.merge
        self.window = pixels // square
        if not self.window:
            raise ModelConfigError(f"window_size {pixels} has no square of {square} pixels")

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x, _ = self.embed(weights, inputs)
        rotary = self.rotary(weights, inputs)
        for layer in range(self.layers):
            x = self._layer(weights, layer, x, rotary)
        x = norm.rms_norm(weights, "merger.ln_q", x, EPS)
        x = ops.select_rows(x, inputs.media.tokens, count=self.merge**2)
        x = linear(weights, "merger.mlp.0", x, (x.width,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(weights, "merger.mlp.2", x, (self.width,), bias=True)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        prefix, in_windows = f"blocks.{layer}", layer not in self._full_layers
        y = norm.rms_norm(weights, f"{prefix}.norm1", x, EPS)
        x = ops.add(x, self.attend(weights, layer, y, rotary, in_windows=in_windows))
        y = norm.rms_norm(weights, f"{prefix}.norm2", x, EPS)
        parts = MlpParts(bias=True)
        y = mlp(weights, f"{prefix}.mlp", y, self._intermediate, self._activation, parts)
        return ops.add(x, y)


class Qwen25OmniVisionTower(Qwen25VlVisionTower):
    """That of Qwen2.5-Omni."""

    kinds = ("qwen2_5_omni_vision_encoder", "qwen2_5_omni_thinker")
    qkv = ("q", "k", "v")


class Exaone45VisionTower(Qwen25VlVisionTower):
    """That of EXAONE 4.5: several heads of queries share keys and values."""

    kinds = ("exaone4_5_vision", "exaone4_5")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        kv_heads = positive_int(config, "num_key_value_heads", 8)
        if self.shape.heads % kv_heads:
            raise ModelConfigError(
                f"{self.shape.heads} heads of the tower cannot share {kv_heads} heads of keys"
            )
        self.shape = replace(self.shape, kv_heads=kv_heads)
