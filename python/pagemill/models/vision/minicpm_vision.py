"""The vision transformer of MiniCPM-V 4.6: SigLIP's layers on patches of images of any size, of
which each square of 2 x 2 is merged into one vector between two layers.

Weights: those of nearest_siglip.py, and if it merges `vit_merger.{layer_norm1,
self_attn.{q,k,v,out}_proj, pre_norm, linear_1, linear_2}`.

A merged vector is at the first patch of its square: later layers compute the rows of those patches
alone, [media_rows, hidden], and put queries, keys and values among the rows of all for attention,
which sees no other ones.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.vision.margin import (
    MARGIN_COLUMNS,
    MarginColumns,
    attend_beside_margin,
    margin_columns,
)
from pagemill.models.vision.nearest_siglip import NearestSiglipTower
from pagemill.models.vision.patch_grid import averaged_patches
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

SQUARE = 2
"""Patches in a row of a square, and merged vectors in a row of one that makes a token."""


class MiniCpmVisionTower(NearestSiglipTower):
    """One tower. The layer `merge_behind` has merged vectors behind it; None: patches are not
    merged."""

    kinds = ("minicpmv4_6_vision", "minicpm_ocr_vision")
    defaults = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 16,
    }

    def __init__(self, config: Config, *, merge_behind: int | None) -> None:
        super().__init__(config, merge=SQUARE)
        self._merge_behind = merge_behind
        if merge_behind is not None:
            if not 0 <= merge_behind < self.layers:
                raise ModelConfigError(
                    f"insert_layer_id is {merge_behind}, of {self.layers} layers"
                )
            self.window = SQUARE
            self.turns = True  # positions say in which window a patch is

    @property
    def merges(self) -> bool:
        """Whether patches are merged between layers."""
        return self._merge_behind is not None

    @property
    def place_channels(self) -> int:
        return super().place_channels + (MARGIN_COLUMNS if self.merges else 0)

    def begins(self, cells: np.ndarray, size: int) -> np.ndarray:
        return cells.astype(np.float32) / np.float32(size)

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """Those of learned embeddings, and the columns of margin.py, which leave out patches where
        no merged vector is."""
        shares = super().places(cells, height, width)
        if not self.merges:
            return shares
        is_other = (cells % SQUARE != 0).any(1)
        columns = np.stack([np.ones_like(is_other), is_other], 1)
        return np.concatenate([shares, columns], 1, dtype=np.float32)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        found = super().features(image)
        if not self.merges:
            return found
        assert image.grid is not None and found.positions is not None
        unit = SQUARE**2
        _, height, width = image.grid
        if height % unit or width % unit:
            raise ValueError(
                f"the grid of an image must be 1, and two multiples of {unit}, got"
                f" {[1, height, width]}"
            )
        # Squares come window by window, and an embedding is at the first square of each window.
        tokens = found.tokens // unit
        positions = GridPositions.in_order(found.positions.rows, tokens)
        placement = unit * np.arange(tokens, dtype=np.int32)
        return MediaFeatures(found.rows, tokens, positions, placement=placement)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [media_rows, 4 * hidden], normalized vectors of four neighbors
        side by side. If patches are merged, a placement lists those of tokens."""
        patches, places = ops.split(inputs.media.rows, self.channels - self.place_channels)
        tokens = inputs.media.tokens
        if self.merges:
            places, margin = ops.split(places, 2 * self.side)
            x = self.placed(weights, patches, places)
            return self._merging(weights, x, tokens, margin_columns(margin))
        x = self.placed(weights, patches, places)
        x = self.encoder.hidden(weights, x, (self.layers,))
        return ops.select_rows(self.post_norm(weights, x), tokens, count=SQUARE**2)

    def _merging(
        self, weights: Weights, x: Tensor, tokens: Tensor, columns: MarginColumns
    ) -> Tensor:
        """x [T, hidden] -> what `hidden` returns."""
        assert self._merge_behind is not None
        layers, between = self.encoder, self._merge_behind + 1

        def attend_to_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention.attend_both_ways(q, k, v, layers.shape)

        for layer in range(between):
            x = layers.layer(weights, layer, x, attend_to_all)
        patches = x

        def attend_to_merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (ops.scatter_rows(patches, each, tokens) for each in (q, k, v))
            y = attend_beside_margin(q, k, v, layers.shape, None, columns)
            return ops.select_rows(y, tokens)

        x = self._merged(weights, patches, tokens)
        for layer in range(between, layers.count):
            x = layers.layer(weights, layer, x, attend_to_merged, flat=True)
        # Neighbors are a square of patches apart.
        spread = ops.scatter_rows(patches, self.post_norm(weights, x), tokens)
        squares = ops.select_rows(spread, tokens, count=SQUARE**4)
        width = self.hidden_size
        firsts = (ops.split(each, width)[0] for each in side_by_side(squares, SQUARE**2 * width))
        return ops.concat(*firsts)

    def _merged(self, weights: Weights, x: Tensor, tokens: Tensor) -> Tensor:
        """x [T, hidden] -> [media_rows, hidden]: the patches of a square attend to each other, and
        what a linear layer makes of them is added to their average."""
        layers, name, count = self.encoder, "vit_merger", SQUARE**2

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention.attend_both_ways(q, k, v, layers.shape, grid_window=SQUARE)

        y = norm.layer_norm(weights, f"{name}.layer_norm1", x, layers.eps)
        x = ops.add(x, layers.attention(weights, f"{name}.self_attn", y, attend))
        x = ops.select_rows(x, tokens, count=count)
        y = norm.layer_norm(weights, f"{name}.pre_norm", x, layers.eps)
        y = linear(weights, f"{name}.linear_1", y, (count * layers.intermediate,), bias=True)
        y = ops.activation(y, ActivationKind.GELU_TANH)
        y = linear(weights, f"{name}.linear_2", y, (self.hidden_size,), bias=True)
        return ops.add(y, averaged_patches(x, count))
