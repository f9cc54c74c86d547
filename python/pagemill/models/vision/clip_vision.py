"""CLIP's vision transformer: patches of an image, and a class token in front, to vectors.

Weights: `embeddings.{class_embedding, patch_embedding, position_embedding}`, `pre_layrnorm`, and
those of vision_layers.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config, MediaInputs
from pagemill.models.config_keys import positive_int
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor


class ClipVisionTower:
    """One tower; models that use the vectors of all patches omit its last norm.
    Patches are in the order of its `grid`; a model merges `merge` x `merge`."""

    class_tokens = 1
    unread = ("post_layernorm", "it is applied to the class token only")

    def __init__(self, config: Config, *, merge: int = 1) -> None:
        self._layers = VisionLayers(config, eps=1e-5, hidden_act="quick_gelu")
        self.layers = self._layers.count
        self.grid = PatchGrid(
            colors=positive_int(config, "num_channels", 3),
            size=positive_int(config, "image_size"),
            patch=positive_int(config, "patch_size"),
            merge=merge,
        )

    def hidden(
        self, weights: Weights, media: MediaInputs, positions: Tensor, depths: Sequence[int]
    ) -> Tensor:
        """Patches [T, channels], zeros for class tokens -> the results behind so many layers
        (`VisionLayers`), a row for the class token and then one for each patch of every image."""
        x = self._embed(weights, media, positions)
        x = norm.layer_norm(weights, "pre_layrnorm", x, self._layers.eps)
        return self._layers.hidden(weights, x, depths)

    def post_norm(self, weights: Weights, x: Tensor) -> Tensor:
        """x [N, hidden], vectors of class tokens, normalized by the norm behind the last layer."""
        return norm.layer_norm(weights, "post_layernorm", x, self._layers.eps)

    def claim_rest(self, weights: Weights, layers: int) -> None:
        """See `VisionLayers.claim_rest`."""
        self._layers.claim_rest(weights, layers)

    def _embed(self, weights: Weights, media: MediaInputs, positions: Tensor) -> Tensor:
        prefix, hidden = "embeddings", self._layers.hidden_size
        matrix = weights.patches(f"{prefix}.patch_embedding", self.grid.kernel(hidden))
        # What is added to the class token, which is the first of each image, and to the others.
        kinds = weights.vectors((f"{prefix}.class_embedding", None), hidden, table=True)
        x = ops.add(ops.linear(media.rows, matrix), ops.embedding(positions, kinds, outside=1))
        table = (self.grid.rows + self.class_tokens, hidden)
        name = f"{prefix}.position_embedding"
        if self.grid.tokens == self.grid.rows:
            return ops.add(x, embedding.embedding(weights, name, positions, table))
        order = [0, *(1 + self.grid.order()).tolist()]
        placed = weights.small(f"{name}.weight", table, row_order=order)
        return ops.add(x, ops.embedding(positions, placed))
