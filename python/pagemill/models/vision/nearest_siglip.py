"""SigLIP's vision transformer for images of any size, each patch of which has the nearest of the
learned embeddings of places.

Weights: `embeddings.{patch_embedding, position_embedding}`, those of vision_layers.py, and
`post_layernorm`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, square_side
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import MAX_SIDE, nearest_shares, place_embeddings
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor


class NearestSiglipTower(GridVisionTower):
    """One tower, whose patches come row by row; those of each square of `merge` x `merge` become
    consecutive. A subclass has:

    - `kinds` of its configuration, and its class's `defaults`: checkpoints may leave them out.
    - `begins`: where cells of a line begin in it.
    """

    width_key = "hidden_size"
    row_by_row = True
    turns = False
    defaults: Config

    def __init__(self, config: Config, *, merge: int) -> None:
        config = Defaults(config, self.defaults)
        sizes = {
            "depth": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "in_channels": config["num_channels"],
            "patch_size": square_side(config, "patch_size"),
            "spatial_merge_size": merge,
            "temporal_patch_size": 1,
        }
        super().__init__({**config, **sizes})
        self.encoder = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        size = square_side(config, "image_size")
        self.side = size // self.patch
        """Learned places in a row, and in a column."""
        if not 0 < self.side <= MAX_SIDE:
            raise ModelConfigError(
                f"image_size {size} has {self.side} places of patch_size {self.patch} in a row; it"
                f" must have from 1 to {MAX_SIDE}"
            )

    @property
    def place_channels(self) -> int:
        return 2 * self.side

    def begins(self, cells: np.ndarray, size: int) -> np.ndarray:
        """Parts of a line of `size` cells in front of these, f32, less than 1."""
        raise NotImplementedError

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """Which of the learned rows, and of the columns, is the nearest."""
        rows, columns = cells.T
        at = self.begins(rows, height), self.begins(columns, width)
        return np.concatenate([nearest_shares(each, self.side) for each in at], 1)

    def placed(self, weights: Weights, rows: Tensor, places: Tensor) -> Tensor:
        """Patches `rows` [T, elements] and their `places` [T, 2 * side] -> what the first layer
        reads, [T, hidden]."""
        hidden, name = self.hidden_size, "embeddings.patch_embedding"
        matrix = weights.patches(name, (hidden, self.colors, self.patch, self.patch))
        x = ops.linear(rows, matrix, weights.vector(f"{name}.bias", hidden))
        name = "embeddings.position_embedding"
        return ops.add(x, place_embeddings(weights, name, places, hidden))

    def post_norm(self, weights: Weights, x: Tensor) -> Tensor:
        """x [N, hidden] normalized by the norm behind the last layer."""
        return norm.layer_norm(weights, "post_layernorm", x, self.encoder.eps)
