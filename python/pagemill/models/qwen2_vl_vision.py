"""Qwen2-VL's vision transformer: patches of images of any size to vectors of 2 x 2 patches each.

Weights: `patch_embed.proj`, `blocks.<i>.{norm1, attn.{qkv, proj}, norm2, mlp.{fc1, fc2}}`,
`merger.{ln_q, mlp.0, mlp.2}`.

Patches are in the processor's order: each 2 x 2 group to be merged is consecutive, groups row by
row.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary, RotaryTable, bind_grid_rotary, rotary_table
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
)
from pagemill.models.config_keys import activation, number, positive_int, rope_parameters
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_EPS = 1e-6
_ROW, _COLUMN = 1, 2  # dimensions of grid positions


class Qwen2VlVisionTower:
    """One tower; the `hidden_size` of its configuration is the width of its results."""

    def __init__(self, config: Config) -> None:
        kind = config.get("model_type", "qwen2_vl")
        if kind not in ("qwen2_vl", "qwen2_vl_vision"):
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} is not supported; known: qwen2_vl_vision"
            )
        self.width = positive_int(config, "hidden_size")
        self._hidden = positive_int(config, "embed_dim")
        self._layers = positive_int(config, "depth")
        self._intermediate = self._hidden * positive_int(config, "mlp_ratio", 4)
        self._activation = activation(config, "hidden_act", "quick_gelu")
        patch = positive_int(config, "patch_size")
        colors = positive_int(config, "in_channels", 3)
        self._patch = (colors, positive_int(config, "temporal_patch_size", 2), patch, patch)
        self.merge = positive_int(config, "spatial_merge_size", 2)
        self._theta = number(rope_parameters(config), "rope_theta", 1e4, least=1.0, most=1e12)
        heads = positive_int(config, "num_heads")
        head_dim, rest = divmod(self._hidden, heads)
        if rest or head_dim % 4:
            raise ModelConfigError(
                f"{heads} heads of {self._hidden} features have no rows and columns to turn by"
            )
        self._shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    @property
    def channels(self) -> int:
        """Elements of a patch."""
        return int(np.prod(self._patch))

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Patches [patches, channels] with their grid."""
        if image.grid is None:
            raise ValueError(
                "an image of this model has a grid: give (patches, (time, rows, columns))"
            )
        time, height, width = image.grid
        merge = self.merge
        if time != 1 or height < merge or width < merge or height % merge or width % merge:
            raise ValueError(
                f"the grid of an image must be 1, and two multiples of {merge}, got"
                f" {[time, height, width]}"
            )
        expected = (height * width, self.channels)
        if image.values.shape != expected:
            raise ValueError(f"patches must be {list(expected)}, got {list(image.values.shape)}")
        groups = _grid(height // merge, width // merge)
        patches = groups[:, None] * (1, merge, merge) + _grid(merge, merge)
        positions = GridPositions(
            rows=np.ascontiguousarray(patches.reshape(-1, 3), np.int32),
            tokens=groups,
            next=max(height, width) // merge,
        )
        return MediaFeatures(np.ascontiguousarray(image.values, np.float32), len(groups), positions)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [media_rows, width]."""
        assert inputs.grid_positions is not None
        rotary = self._rotary(weights, inputs.grid_positions)
        matrix = weights.patches("patch_embed.proj", (self._hidden, *self._patch))
        x = ops.linear(inputs.media.rows, matrix)
        for layer in range(self._layers):
            x = self._layer(weights, f"blocks.{layer}", x, rotary)
        return self._merge(weights, x, inputs.media.tokens)

    def _rotary(self, weights: Weights, positions: Tensor) -> Rotary:
        """Half of the pairs rotate by the row, with the frequencies for that many pairs, half by
        the column."""
        half = rotary_table({"rope_theta": self._theta}, self._shape.head_dim // 2, 1).inv_freq
        dims = (_ROW,) * len(half) + (_COLUMN,) * len(half)
        return bind_grid_rotary(weights, "inv_freq", RotaryTable(half * 2), dims, positions)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        hidden = self._hidden
        y = norm.layer_norm(weights, f"{prefix}.norm1", x, _EPS)
        q, k, v = attention.project_qkv(weights, [f"{prefix}.attn.qkv"], y, self._shape, bias=True)
        y = attention.attend_both_ways(*rotary(q, k), v, self._shape)
        x = ops.add(x, linear(weights, f"{prefix}.attn.proj", y, (hidden,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.norm2", x, _EPS)
        y = linear(weights, f"{prefix}.mlp.fc1", y, (self._intermediate,), bias=True)
        y = ops.activation(y, self._activation)
        return ops.add(x, linear(weights, f"{prefix}.mlp.fc2", y, (hidden,), bias=True))

    def _merge(self, weights: Weights, x: Tensor, first: Tensor) -> Tensor:
        y = norm.layer_norm(weights, "merger.ln_q", x, _EPS)
        y = ops.select_rows(y, first, count=self.merge**2)
        y = linear(weights, "merger.mlp.0", y, (y.width,), bias=True)
        y = ops.activation(y, ActivationKind.GELU)
        return linear(weights, "merger.mlp.2", y, (self.width,), bias=True)


def _grid(height: int, width: int) -> np.ndarray:
    """Time, row and column of each cell, row by row, i32 [height * width, 3]."""
    rows, columns = np.divmod(np.arange(height * width, dtype=np.int32), np.int32(width))
    return np.stack([np.zeros_like(rows), rows, columns], axis=1)
