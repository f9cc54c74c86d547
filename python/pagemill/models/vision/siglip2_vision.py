"""SigLIP 2's vision transformer for images of any size (NaFlex): SigLIP's layers, with learned
embeddings of places that are interpolated.

Weights: `embeddings.{patch_embedding, position_embedding}`, those of vision_layers.py, and
`post_layernorm`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import Defaults, positive_int
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.place_embeddings import PlaceTable, place_embeddings, smoothed_shares
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor

# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "num_patches": 256,
    "patch_size": 16,
}


class Siglip2VisionTower(GridVisionTower):
    """One tower. A patch has its colors pixel by pixel. What a model merges is what `hidden`
    returns."""

    kinds = ("siglip2_vision_model",)
    width_key = "hidden_size"
    turns = False
    row_by_row = True

    def __init__(self, config: Config, *, merge: int) -> None:
        """A model merges `merge` x `merge` patches."""
        config = Defaults(config, _DEFAULTS)
        sizes = {
            "depth": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "in_channels": config["num_channels"],
            "spatial_merge_size": merge,
            "temporal_patch_size": 1,
        }
        super().__init__({**config, **sizes})
        self.encoder = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        self.place_table = PlaceTable.of(
            positive_int(config, "num_patches"), "num_patches", smoothed_shares
        )

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized; they are not merged."""
        rows, places = ops.split(inputs.media.rows, self.channels - self.place_channels)
        hidden = self.hidden_size
        x = linear(weights, "embeddings.patch_embedding", rows, (hidden,), bias=True)
        name = "embeddings.position_embedding"
        x = ops.add(x, place_embeddings(weights, name, places, hidden))
        x = self.encoder.hidden(weights, x, (self.encoder.count,))
        return norm.layer_norm(weights, "post_layernorm", x, self.encoder.eps)
