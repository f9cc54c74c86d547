"""Pixtral's vision transformer: patches of images of any size to vectors, turned by row and column.

Weights: `patch_conv`, `ln_pre`, `transformer.layers.<i>.{attention_norm, attention.{q,k,v,o}_proj,
ffn_norm, feed_forward.{gate,up,down}_proj}`, all without biases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import Defaults, activation, layer_count, positive_int
from pagemill.models.vision.grid_rotary import COLUMN, ROW, frequencies, grid_heads, grid_rotary
from pagemill.ops.trace import Tensor

_EPS = 1e-5
# Those of the configuration's class: published checkpoints leave them out.
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 16,
}


class PixtralVisionTower:
    """One tower. With `merge` above 1, patches are in the order in which a model merges them: those
    of each square of `merge` x `merge` one after the other, squares row by row."""

    def __init__(self, config: Config, *, merge: int = 1) -> None:
        config = Defaults(config, _DEFAULTS)
        self.hidden_size = positive_int(config, "hidden_size")
        self.layers = layer_count(config)
        self._merge = merge
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", "gelu")
        self._colors = positive_int(config, "num_channels", 3)
        self._patch = positive_int(config, "patch_size")
        self._shape = grid_heads(self.hidden_size, positive_int(config, "num_attention_heads"))
        self._frequencies = frequencies(config, self._shape.head_dim)

    @property
    def channels(self) -> int:
        """Elements of a patch."""
        return self._colors * self._patch**2

    def features(self, image: PreparedMedia, *, row_ends: bool) -> MediaFeatures:
        """Patches [patches, channels] of pixels [colors, height, width], and their positions. Each
        row of merged patches is a row of tokens, with one more at its end if there are
        `row_ends`."""
        pixels, unit = image.values, self._merge * self._patch
        if image.grid is not None:
            raise ValueError("an image of this model is an array of pixels, without a grid")
        if pixels.ndim != 3 or len(pixels) != self._colors:
            raise ValueError(
                f"an image must be [{self._colors}, height, width], got {list(pixels.shape)}"
            )
        rows, columns = (side // unit for side in pixels.shape[1:])
        if not rows or not columns or pixels.shape[1:] != (rows * unit, columns * unit):
            raise ValueError(
                f"height and width of an image must be multiples of {unit}, got"
                f" {list(pixels.shape[1:])}"
            )
        tokens = rows * (columns + row_ends)
        positions = GridPositions.in_order(self._positions(rows, columns), tokens)
        patches = self._patches(pixels, rows, columns)
        return MediaFeatures(patches, tokens, positions, columns if row_ends else 0)

    def hidden(self, weights: Weights, inputs: EncoderInputs, depths: Sequence[int]) -> Tensor:
        """Patches [T, channels] -> what is behind so many layers, for each depth side by side: [T,
        len(depths) * hidden]. Depth 0 is what the first layer reads."""
        assert inputs.grid_positions is not None
        rotary = self._rotary(weights, inputs.grid_positions)
        kernel = (self.hidden_size, self._colors, self._patch, self._patch)
        x = ops.linear(inputs.media.rows, weights.patches("patch_conv", kernel))
        states = [norm.rms_norm(weights, "ln_pre", x, _EPS)]
        for layer in range(max(depths)):
            states.append(self._layer(weights, f"transformer.layers.{layer}", states[-1], rotary))
        selected = [states[depth] for depth in depths]
        return selected[0] if len(selected) == 1 else ops.concat(*selected)

    def _patches(self, pixels: np.ndarray, rows: int, columns: int) -> np.ndarray:
        merge, patch = self._merge, self._patch
        cut = pixels.reshape(self._colors, rows, merge, patch, columns, merge, patch)
        patches = cut.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, self.channels)
        return np.ascontiguousarray(patches, np.float32)

    def _positions(self, rows: int, columns: int) -> np.ndarray:
        """Time, row and column of each patch in this tower's order, i32 [patches, 3]."""
        merge = self._merge
        cells = np.indices((rows, columns, merge, merge), np.int32)
        row, column = cells[0] * merge + cells[2], cells[1] * merge + cells[3]
        return np.stack([np.zeros_like(row), row, column], axis=-1).reshape(-1, 3)

    def _rotary(self, weights: Weights, positions: Tensor) -> Rotary:
        """Every second frequency turns by the row, the others by the column."""
        by = {ROW: self._frequencies[::2], COLUMN: self._frequencies[1::2]}
        return grid_rotary(weights, positions, by)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        inner = f"{prefix}.attention"
        y = norm.rms_norm(weights, f"{prefix}.attention_norm", x, _EPS)
        names = (f"{inner}.q_proj", f"{inner}.k_proj", f"{inner}.v_proj")
        q, k, v = attention.project_qkv(weights, names, y, self._shape)
        y = attention.attend_both_ways(*rotary(q, k), v, self._shape)
        x = ops.add(x, linear(weights, f"{inner}.o_proj", y, (self.hidden_size,)))
        y = norm.rms_norm(weights, f"{prefix}.ffn_norm", x, _EPS)
        y = mlp(weights, f"{prefix}.feed_forward", y, self._intermediate, self._activation)
        return ops.add(x, y)
