"""Gemma 4's vision transformer: patches of images of any size, turned by column and row, whose
linear layers may clamp what they read and write, and the average of each square of patches.

Weights: `patch_embedder.{input_proj, position_embedding_table}`, in layer i `encoder.layers.<i>.`
{`input_layernorm`, `post_attention_layernorm`, `pre_feedforward_layernorm`,
`post_feedforward_layernorm`, `self_attn.{q,k}_norm`} and, of `self_attn.{q,k,v,o}_proj` and
`mlp.{gate,up,down}_proj`, `linear.weight` and the bounds `{input,output}_{min,max}`; `std_bias`
and `std_scale`.

A patch has its colors pixel by pixel; patches come row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.layers.rotary import Rotary, RotaryTable, bind_grid_rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.clamped_linear import clamped_linear
from pagemill.models.config_keys import (
    Defaults,
    activation,
    epsilon,
    flag,
    positive_int,
    refuse,
)
from pagemill.models.vision.grid_rotary import COLUMN, ROW, frequencies
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import share_products
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_ONE_FRAME = {"in_channels": 3, "temporal_patch_size": 1}
_DIGIT = 32
_MAX_PLACES = _DIGIT**2
# Those of the configuration's class: published checkpoints leave them out.
_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "position_embedding_size": 10240,
    "rope_parameters": {"rope_theta": 100.0},
}


class Gemma4VisionTower(GridVisionTower):
    """One tower. Its results are normalized averages of squares."""

    kinds = ("gemma4_vision",)
    width_key = "hidden_size"
    row_by_row = True

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        refuse(config, "attention_bias")
        names = {
            "depth": "num_hidden_layers",
            "num_heads": "num_attention_heads",
            "spatial_merge_size": "pooling_kernel_size",
        }
        super().__init__(
            {**config, **{name: config[own] for name, own in names.items()}, **_ONE_FRAME}
        )
        self._intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.eps = epsilon(config, "rms_norm_eps", 1e-6)
        self._clamps = flag(config, "use_clipped_linears", False)
        self._standardizes = flag(config, "standardize", False)
        heads, kv_heads, dim = (
            positive_int(config, key)
            for key in ("num_attention_heads", "num_key_value_heads", "head_dim")
        )
        if dim % 4 or heads % kv_heads:
            raise ModelConfigError(
                f"{heads} heads of head_dim {dim} and {kv_heads} of keys: head_dim must be a"
                " multiple of 4, and heads one of num_key_value_heads"
            )
        self.shape = AttentionShape(heads, kv_heads, dim, scale=1.0)
        self._half = RotaryTable(tuple(frequencies(config, dim // 2)))
        self._table = positive_int(config, "position_embedding_size")
        digits = min(self._table, _MAX_PLACES) // _DIGIT
        if not digits:
            raise ModelConfigError(
                f"position_embedding_size is {self._table}; it must be at least {_DIGIT}"
            )
        self._digits = digits

    @property
    def place_channels(self) -> int:
        return 2 * (self._digits + _DIGIT)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        features = super().features(image)
        pixels = features.rows[:, : self._patch_elements]
        pixels *= 2
        pixels -= 1
        return features

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """Of the column, and of the row, two digits, each a 1 among zeros."""
        most = self._digits * _DIGIT
        if max(height, width) > most:
            raise ValueError(f"an image has at most {most} patches in a row or a column")
        rows, columns = cells.T
        digits = [
            (place[:, None] == np.arange(count))
            for at in (columns, rows)
            for place, count in ((at // _DIGIT, self._digits), (at % _DIGIT, _DIGIT))
        ]
        return np.concatenate(digits, 1, dtype=np.float32)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [media_rows, hidden]."""
        assert inputs.grid_positions is not None
        patches, places = ops.split(inputs.media.rows, self._patch_elements)
        x = linear(weights, "patch_embedder.input_proj", patches, (self.hidden_size,))
        x = ops.add(x, self._placed(weights, places))
        rotaries = [
            self._bind(weights, inputs.grid_positions, dim, begin)
            for dim, begin in ((COLUMN, 0), (ROW, self.shape.head_dim // 2))
        ]
        for layer in range(self.layers):
            x = self._layer(weights, f"encoder.layers.{layer}", x, rotaries)
        return self._pooled(weights, x, inputs.media.tokens)

    def _placed(self, weights: Weights, places: Tensor) -> Tensor:
        """The learned embedding of each patch's column plus that of its row, [T, hidden]."""
        name = "patch_embedder.position_embedding_table"
        count, total = self._digits * _DIGIT, 2 * self._table
        placed: list[Tensor] = []
        for axis, digits in enumerate(ops.split(places, places.width // 2)):
            first = axis * self._table
            table = weights.turned_matrix(
                name,
                (self.hidden_size, total),
                columns=Part(first, first + count, total),
                stored=(2, self._table, self.hidden_size),
            )
            placed.append(ops.linear(share_products(weights, digits, self._digits), table))
        return ops.add(*placed)

    def _bind(self, weights: Weights, positions: Tensor, dim: int, begin: int) -> Rotary:
        """Rotates half of each head, from `begin` on, by one dimension."""
        dims = (dim,) * len(self._half.inv_freq)
        bound = bind_grid_rotary(weights, f"inv_freq.{dim}", self._half, dims, positions)
        return replace(bound, begin=begin)

    def _layer(
        self, weights: Weights, prefix: str, x: Tensor, rotaries: Sequence[Rotary]
    ) -> Tensor:
        y = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, self.eps)
        y = self._attend(weights, f"{prefix}.self_attn", y, rotaries)
        x = ops.add(x, norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", y, self.eps))
        y = norm.rms_norm(weights, f"{prefix}.pre_feedforward_layernorm", x, self.eps)
        gate, up = (
            self._clamped(weights, f"{prefix}.mlp.{name}_proj", y, (self._intermediate,))
            for name in ("gate", "up")
        )
        y = ops.gated_activation(gate, up, self._activation)
        y = self._clamped(weights, f"{prefix}.mlp.down_proj", y, (self.hidden_size,))
        return ops.add(
            x, norm.rms_norm(weights, f"{prefix}.post_feedforward_layernorm", y, self.eps)
        )

    def _attend(self, weights: Weights, name: str, x: Tensor, rotaries: Sequence[Rotary]) -> Tensor:
        shape, eps = self.shape, self.eps
        q, k, v = (
            self._clamped(weights, f"{name}.{which}_proj", x, (heads, shape.head_dim))
            for which, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads))
        )
        q = norm.rms_norm(weights, f"{name}.q_norm", q, eps)
        k = norm.rms_norm(weights, f"{name}.k_norm", k, eps)
        v = norm.rms_norm(weights, "", v, eps, weight=False)
        for rotary in rotaries:
            q, k = rotary(q, k)
        y = attention.attend_both_ways(q, k, v, shape)
        return self._clamped(weights, f"{name}.o_proj", y, (self.hidden_size,))

    def _clamped(self, weights: Weights, name: str, x: Tensor, row_shape: Sequence[int]) -> Tensor:
        return clamped_linear(weights, name, x, row_shape, clamps=self._clamps)

    def _pooled(self, weights: Weights, x: Tensor, squares: Tensor) -> Tensor:
        """x [T, hidden] -> the average of each square, standardized and normalized. Averages times
        sqrt(hidden), as the model has them, may be too large for f16: the norm's epsilon is divided
        in place of them."""
        count, root = self.merge**2, self.hidden_size**0.5
        rows = ops.select_rows(x, squares, count=count)
        x = ops.scale(reduce(ops.add, side_by_side(rows, self.hidden_size)), 1 / count)
        if self._standardizes:
            bias = weights.vectors(("std_bias",), self.hidden_size, table=True)
            x = ops.add(x, ops.embedding(squares, bias, scale=-1 / root, outside=0))
            x = ops.scale_columns(x, weights.vector("std_scale", self.hidden_size))
        return norm.rms_norm(weights, "", x, self.eps / self.hidden_size, weight=False)
