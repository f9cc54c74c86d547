"""The vision transformer of Phi-4 multimodal: SigLIP's on tiles of an image, parts of which may be
a margin.

Weights: those of siglip_vision.py.

A margin lies below and to the right of a tile's picture. No patch attends to those of a margin, and
learned embeddings of places are those of a picture as large as a tile.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults, positive_int, square_side
from pagemill.models.vision.margin import MARGIN_COLUMNS, margin_columns
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.models.vision.place_embeddings import place_embeddings, places_at
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor

# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}
_LAST = np.float32(1.0 - 1e-6)  # the end of a tile, of which 1 is behind


class Phi4VisionTower:
    """One tower. Patches are in the order of its `grid`; a model merges `merge` x `merge`."""

    def __init__(self, config: Config, *, merge: int) -> None:
        config = Defaults(config, _DEFAULTS)
        self._layers = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        self.hidden_size = self._layers.hidden_size
        self.layers = self._layers.count
        self.grid = PatchGrid(
            colors=positive_int(config, "num_channels", 3),
            size=square_side(config, "image_size"),
            patch=square_side(config, "patch_size"),
            merge=merge,
        )

    @property
    def channels(self) -> int:
        """Elements of a row of features."""
        return self.grid.channels + 2 * self.grid.side + MARGIN_COLUMNS

    def features(self, pixels: np.ndarray, rows: int, columns: int) -> np.ndarray:
        """A tile of the grid's `image_shape`, whose picture has so many patches -> f32 [patches,
        channels].

        Raises:
            ValueError: it has another shape.
        """
        side = self.grid.side
        cell_rows, cell_columns = np.divmod(self.grid.order(), side)
        is_margin = (cell_rows >= rows) | (cell_columns >= columns)
        places = np.zeros((len(is_margin), 2 * side), np.float32)
        for first, cells, count in ((0, cell_rows, rows), (side, cell_columns, columns)):
            own = np.where(is_margin, 0, _places(side, count)[cells])
            places[np.arange(len(own)), first + own] = 1
        margin = np.stack([np.ones_like(is_margin), is_margin], 1)
        patches = self.grid.patches(pixels)
        return np.concatenate([patches, places, margin], 1, dtype=np.float32)

    def hidden(self, weights: Weights, features: Tensor, depth: int) -> Tensor:
        """features [T, channels] -> [T, hidden], what is behind `depth` layers."""
        hidden, grid = self.hidden_size, self.grid
        rows, rest = ops.split(features, grid.channels)
        places, margin = ops.split(rest, 2 * grid.side)
        matrix = weights.patches("embeddings.patch_embedding", grid.kernel(hidden))
        x = ops.linear(rows, matrix, weights.vector("embeddings.patch_embedding.bias", hidden))
        x = ops.add(x, place_embeddings(weights, "embeddings.position_embedding", places, hidden))
        x = self._layers.hidden(weights, x, (depth,), margin=margin_columns(margin))
        self._layers.claim_rest(weights, depth)
        return x


def _places(side: int, count: int) -> np.ndarray:
    """The places, of `side` in a line, of each of `side` cells, of which the first `count` are a
    picture; in f32, as `transformers` computes them."""
    at = np.arange(side, dtype=np.float32) * (np.float32(1) / np.float32(max(count, 1)))
    return places_at(np.minimum(at, _LAST), side)
