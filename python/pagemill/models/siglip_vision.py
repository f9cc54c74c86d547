"""SigLIP's vision transformer: patches of an image to vectors, without a class token.

Weights: `embeddings.{patch_embedding, position_embedding}`, those of vision_layers.py, and
`post_layernorm`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config, MediaInputs, ModelConfigError
from pagemill.models.config_keys import positive_int
from pagemill.models.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor


class SiglipVisionTower:
    """One tower. With `merge` above 1, patches are in the order in which a model merges them: those
    of each square of `merge` x `merge` one after the other, squares row by row."""

    class_tokens = 0
    unread = ("(post_layernorm|head)", "the vectors of all patches are used, not normalized")

    def __init__(self, config: Config, *, merge: int = 1) -> None:
        self._layers = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        self.hidden_size = self._layers.hidden_size
        self.layers = self._layers.count
        self._merge = merge
        self._colors = positive_int(config, "num_channels", 3)
        self._patch = positive_int(config, "patch_size")
        self._size = positive_int(config, "image_size")
        # Pixels behind the last whole patch are not read.
        self._side = self._size // self._patch
        if not self._side or self._side % merge:
            raise ModelConfigError(
                f"image_size {self._size} has {self._side} patches of {self._patch} in a row, which"
                f" cannot be merged {merge} by {merge}"
            )

    @property
    def rows(self) -> int:
        """Patches of an image."""
        return self._side**2

    @property
    def channels(self) -> int:
        """Elements of a patch."""
        return self._colors * self._patch**2

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Colors, height and width."""
        return self._colors, self._size, self._size

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """An image of `image_shape` as its patches [rows, channels]."""
        if pixels.shape != self.image_shape:
            expected = list(self.image_shape)
            raise ValueError(f"an image must be {expected}, got {list(pixels.shape)}")
        side, patch = self._side, self._patch
        whole = pixels[:, : side * patch, : side * patch]
        cut = whole.reshape(self._colors, side, patch, side, patch).transpose(1, 3, 0, 2, 4)
        patches = cut.reshape(self.rows, self.channels)[self._order()]
        return np.ascontiguousarray(patches, np.float32)

    def hidden(
        self, weights: Weights, media: MediaInputs, positions: Tensor, depths: Sequence[int]
    ) -> Tensor:
        """Patches [T, channels] -> the results behind so many layers (`VisionLayers`)."""
        prefix, hidden = "embeddings", self.hidden_size
        kernel = (hidden, self._colors, self._patch, self._patch)
        matrix = weights.patches(f"{prefix}.patch_embedding", kernel)
        bias = weights.vector(f"{prefix}.patch_embedding.bias", hidden)
        x = ops.linear(media.rows, matrix, bias)
        x = ops.add(x, self._placed(weights, positions))
        return self._layers.hidden(weights, x, depths)

    def claim_rest(self, weights: Weights, layers: int) -> None:
        """See `VisionLayers.claim_rest`."""
        self._layers.claim_rest(weights, layers)

    def post_norm(self, weights: Weights, x: Tensor) -> Tensor:
        """x [T, hidden] normalized by the norm behind the last layer."""
        return norm.layer_norm(weights, "post_layernorm", x, self._layers.eps)

    def _placed(self, weights: Weights, positions: Tensor) -> Tensor:
        """The position embedding of each patch."""
        name, table = "embeddings.position_embedding", (self.rows, self.hidden_size)
        if self._merge == 1:
            return embedding.embedding(weights, name, positions, table)
        reordered = weights.small(f"{name}.weight", table, row_order=self._order().tolist())
        return ops.embedding(positions, reordered)

    def _order(self) -> np.ndarray:
        """For each patch in this tower's order its number row by row, [rows]."""
        squares, merge = self._side // self._merge, self._merge
        numbers = np.arange(self.rows).reshape(squares, merge, squares, merge)
        return numbers.transpose(0, 2, 1, 3).reshape(-1)
