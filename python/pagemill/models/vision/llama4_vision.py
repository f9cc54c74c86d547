"""Llama 4's vision transformer: patches of a tile, and a class token in front, to vectors that are
each merged from a square of patches.

Weights: `patch_embedding.linear`, `class_embedding`, `positional_embedding_vlm`,
`layernorm_{pre,post}`, `model.layers.<i>.{input_layernorm, self_attn.{q,k,v,o}_proj,
post_attention_layernorm, mlp.{fc1,fc2}}` and `vision_adapter.mlp.{fc1,fc2}`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, layer_count, positive_int
from pagemill.models.vision.grid_rotary import COLUMN, ROW, frequencies, grid_heads, grid_rotary
from pagemill.models.vision.patch_grid import PatchGrid, merged_side
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_EPS = 1e-5
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "vision_output_dim": 7680,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
}


class Llama4VisionTower:
    """One tower. Patches are in the order of its `grid`."""

    class_tokens = 1

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        self._hidden = positive_int(config, "hidden_size")
        self._layers = layer_count(config)
        self._intermediate = positive_int(config, "intermediate_size")
        self._merge = merged_side(config, "pixel_shuffle_ratio")
        self.grid = PatchGrid(
            colors=positive_int(config, "num_channels", 3),
            size=positive_int(config, "image_size"),
            patch=positive_int(config, "patch_size"),
            merge=self._merge,
        )
        self.width = positive_int(config, "projector_output_dim")
        """Elements of a merged vector."""
        if positive_int(config, "projector_input_dim") != self.width:
            raise ModelConfigError(
                "projector_input_dim and projector_output_dim must be the same number"
            )
        if positive_int(config, "vision_output_dim") != self.width:
            raise ModelConfigError(
                "vision_output_dim and projector_output_dim must be the same number"
            )
        if self._intermediate != self._hidden * self._merge**2:
            raise ModelConfigError(
                f"intermediate_size is {self._intermediate}; it must be {self._merge**2} times"
                f" hidden_size, {self._hidden}: {self._merge} x {self._merge} patches are merged"
            )
        self._shape = grid_heads(self._hidden, positive_int(config, "num_attention_heads"))
        self._frequencies = frequencies(config, self._shape.head_dim // 2)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """A tile as its patches, [rows, channels], and their positions, from 1: the class token is
        at 0."""
        item = self.grid.features(image)
        order = self.grid.order().astype(np.int32)
        row, column = np.divmod(order, np.int32(self.grid.side))
        rows = np.stack([np.zeros_like(row), row + 1, column + 1], axis=1)
        positions = GridPositions.in_order(rows, item.tokens)
        return MediaFeatures(item.rows, item.tokens, positions)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels], zeros for class tokens -> [media_rows, width]."""
        assert inputs.grid_positions is not None
        rotary = self._rotary(weights, inputs.grid_positions)
        x = norm.layer_norm(weights, "layernorm_pre", self._embed(weights, inputs), _EPS)
        for layer in range(self._layers):
            x = self._layer(weights, f"model.layers.{layer}", x, rotary)
        x = norm.layer_norm(weights, "layernorm_post", x, _EPS)
        x = ops.select_rows(x, inputs.media.tokens, count=self._merge**2)
        for layer in ("fc1", "fc2"):
            x = linear(weights, f"vision_adapter.mlp.{layer}", x, (self.width,))
            x = ops.activation(x, ActivationKind.GELU)
        return x

    def _embed(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = linear(weights, "patch_embedding.linear", inputs.media.rows, (self._hidden,))
        # What is added to the class token, which is the first of each tile, and to the others.
        kinds = weights.vectors(("class_embedding", None), self._hidden, table=True)
        x = ops.add(x, ops.embedding(inputs.positions, kinds, outside=1))
        rows = self.grid.rows
        placed = weights.small(
            "positional_embedding_vlm",
            (rows + 1, self._hidden),
            row_order=[rows, *self.grid.order().tolist()],
        )
        return ops.add(x, ops.embedding(inputs.positions, placed))

    def _rotary(self, weights: Weights, positions: Tensor) -> Rotary:
        """Half of the pairs rotate by the column, with the frequencies for that many pairs, half by
        the row."""
        by = {COLUMN: self._frequencies, ROW: self._frequencies}
        return grid_rotary(weights, positions, by, interleaved=True)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, rotary: Rotary) -> Tensor:
        inner, hidden = f"{prefix}.self_attn", self._hidden
        y = norm.layer_norm(weights, f"{prefix}.input_layernorm", x, _EPS)
        names = (f"{inner}.q_proj", f"{inner}.k_proj", f"{inner}.v_proj")
        q, k, v = attention.project_qkv(weights, names, y, self._shape, bias=True)
        y = attention.attend_both_ways(*rotary(q, k), v, self._shape)
        x = ops.add(x, linear(weights, f"{inner}.o_proj", y, (hidden,), bias=True))
        y = norm.layer_norm(weights, f"{prefix}.post_attention_layernorm", x, _EPS)
        y = linear(weights, f"{prefix}.mlp.fc1", y, (self._intermediate,), bias=True)
        y = ops.activation(y, ActivationKind.GELU)
        return ops.add(x, linear(weights, f"{prefix}.mlp.fc2", y, (hidden,), bias=True))
