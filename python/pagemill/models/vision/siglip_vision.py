"""SigLIP's vision transformer: patches of an image to vectors, without a class token.

Weights: `embeddings.{patch_embedding, position_embedding}`, those of vision_layers.py, and
`post_layernorm`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config, MediaInputs, ModelConfigError
from pagemill.models.config_keys import Defaults, inner_config, positive_int
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

KIND = "siglip_vision_model"
DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}
"""Those of the configuration's class: published checkpoints leave them out."""


def tower_config(config: Config) -> Config:
    """The configuration of the tower of a model whose `vision_config` may be of no other kind.

    Raises:
        ModelConfigError: it is, or there is none.
    """
    vision = inner_config(config, "vision_config")
    kind = vision.get("model_type", KIND)
    if kind != KIND:
        raise ModelConfigError(
            f"a vision tower of type {shown(kind)} in this architecture is not supported; known:"
            f" {KIND}"
        )
    return Defaults(vision, DEFAULTS)


class SiglipVisionTower:
    """One tower. Patches are in the order of its `grid`; a model merges `merge` x `merge`, perhaps
    in windows of `window` x `window` squares."""

    class_tokens = 0
    unread = ("(post_layernorm|head)", "the vectors of all patches are used, not normalized")

    def __init__(self, config: Config, *, merge: int = 1, window: int = 0) -> None:
        self.encoder = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        self.hidden_size = self.encoder.hidden_size
        self.layers = self.encoder.count
        self.grid = PatchGrid(
            colors=positive_int(config, "num_channels", 3),
            size=positive_int(config, "image_size"),
            patch=positive_int(config, "patch_size"),
            merge=merge,
            window=window,
        )

    def hidden(
        self, weights: Weights, media: MediaInputs, positions: Tensor, depths: Sequence[int]
    ) -> Tensor:
        """Patches [T, channels] -> the results behind so many layers (`VisionLayers`)."""
        prefix, hidden = "embeddings", self.hidden_size
        matrix = weights.patches(f"{prefix}.patch_embedding", self.grid.kernel(hidden))
        bias = weights.vector(f"{prefix}.patch_embedding.bias", hidden)
        x = ops.linear(media.rows, matrix, bias)
        x = ops.add(x, self._placed(weights, positions))
        return self.encoder.hidden(weights, x, depths)

    def claim_rest(self, weights: Weights, layers: int) -> None:
        """See `VisionLayers.claim_rest`."""
        self.encoder.claim_rest(weights, layers)

    def post_norm(self, weights: Weights, x: Tensor) -> Tensor:
        """x [T, hidden] normalized by the norm behind the last layer."""
        return norm.layer_norm(weights, "post_layernorm", x, self.encoder.eps)

    def _placed(self, weights: Weights, positions: Tensor) -> Tensor:
        """The position embedding of each patch."""
        name, table = "embeddings.position_embedding", (self.grid.rows, self.hidden_size)
        if self.grid.tokens == self.grid.rows:
            return embedding.embedding(weights, name, positions, table)
        reordered = weights.small(f"{name}.weight", table, row_order=self.grid.order().tolist())
        return ops.embedding(positions, reordered)
