"""VideoLLaMA 3's vision transformer: SigLIP's layers for images of any size, turned by row and
column.

Weights: `embeddings.patch_embedding`, those of vision_layers.py, and `post_layernorm`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config, EncoderInputs
from pagemill.models.config_keys import Defaults
from pagemill.models.vision.grid_vision import GridVisionTower
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor

# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "patch_size": 16,
}


class VideoLlama3VisionTower(GridVisionTower):
    """One tower. What a model merges is what `hidden` returns."""

    kinds = ("video_llama_3_vision",)
    width_key = "hidden_size"

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
        self._layers = VisionLayers(config, eps=1e-6, hidden_act="gelu_pytorch_tanh")

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """Patches [T, channels] -> [T, hidden], normalized."""
        hidden, name = self.hidden_size, "embeddings.patch_embedding"
        matrix = weights.patches(name, (hidden, self.colors, self.patch, self.patch))
        x = ops.linear(inputs.media.rows, matrix, weights.vector(f"{name}.bias", hidden))
        rotary = self.rotary(weights, inputs)
        x = self._layers.hidden(weights, x, (self._layers.count,), rotary)
        return norm.layer_norm(weights, "post_layernorm", x, self._layers.eps)
