"""CLIP's vision transformer: patches of an image, and a class token in front, to vectors.

Weights: `embeddings.{class_embedding, patch_embedding, position_embedding}`, `pre_layrnorm`, and
those of vision_layers.py.
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


class ClipVisionTower:
    """One tower without its last norm, which models that use the vectors of all patches omit."""

    class_tokens = 1
    unread = ("post_layernorm", "it is applied to the class token only")

    def __init__(self, config: Config) -> None:
        self._layers = VisionLayers(config, eps=1e-5, hidden_act="quick_gelu")
        self.layers = self._layers.count
        self._colors = positive_int(config, "num_channels", 3)
        self._patch = positive_int(config, "patch_size")
        self._side, rest = divmod(positive_int(config, "image_size"), self._patch)
        if rest or not self._side:
            raise ModelConfigError(f"image_size is not a multiple of patch_size {self._patch}")

    @property
    def rows(self) -> int:
        """Patches of an image."""
        return self._side**2

    @property
    def channels(self) -> int:
        """Elements of a patch."""
        return self._colors * self._patch**2

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """An image [colors, height, width] as its patches [rows, channels], row by row."""
        size = self._side * self._patch
        expected = (self._colors, size, size)
        if pixels.shape != expected:
            raise ValueError(f"an image must be [3, {size}, {size}], got {list(pixels.shape)}")
        cut = pixels.reshape(self._colors, self._side, self._patch, self._side, self._patch)
        patches = cut.transpose(1, 3, 0, 2, 4).reshape(self.rows, self.channels)
        return np.ascontiguousarray(patches, np.float32)

    def hidden(
        self, weights: Weights, media: MediaInputs, positions: Tensor, depths: Sequence[int]
    ) -> Tensor:
        """Patches [media_rows, channels] -> the results behind so many layers (`VisionLayers`), a
        row for the class token and then one for each patch of every image."""
        x = self._embed(weights, media, positions)
        x = norm.layer_norm(weights, "pre_layrnorm", x, self._layers.eps)
        return self._layers.hidden(weights, x, depths)

    def claim_rest(self, weights: Weights, layers: int) -> None:
        """See `VisionLayers.claim_rest`."""
        self._layers.claim_rest(weights, layers)

    def _embed(self, weights: Weights, media: MediaInputs, positions: Tensor) -> Tensor:
        prefix, hidden = "embeddings", self._layers.hidden_size
        table = (self.rows + self.class_tokens, hidden)
        placed = embedding.embedding(weights, f"{prefix}.position_embedding", positions, table)
        kernel = (hidden, self._colors, self._patch, self._patch)
        matrix = weights.patches(f"{prefix}.patch_embedding", kernel)
        patches = ops.add(ops.linear(media.rows, matrix), ops.select_rows(placed, media.tokens))
        first = ops.add(placed, weights.vector(f"{prefix}.class_embedding", hidden))
        return ops.scatter_rows(first, patches, media.tokens)
