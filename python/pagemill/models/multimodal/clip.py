"""CLIP, a model of two towers (two_towers.py).

Weights: `text_model.`, `text_projection`; `vision_model.` (clip_vision.py) with `post_layernorm`,
`visual_projection`.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, MediaTraits
from pagemill.models.config_keys import Defaults, inner_config, positive_int
from pagemill.models.multimodal.two_towers import TextTower, TwoTowers
from pagemill.models.vision.clip_vision import ClipVisionTower
from pagemill.ops.trace import Tensor

# Those of the configurations' classes.
_TEXT_DEFAULTS = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
}
_VISION_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
}


class ClipModel(TwoTowers):
    """One CLIP model. An image has one embedding, made of its class token, whose row of features is
    0 and comes first."""

    def __init__(self, config: Config) -> None:
        text = Defaults(inner_config(config, "text_config"), _TEXT_DEFAULTS)
        vision = Defaults(inner_config(config, "vision_config"), _VISION_DEFAULTS)
        tower = TextTower(text, eps=1e-5, hidden_act="quick_gelu")
        super().__init__(tower, positive_int(config, "projection_dim", 512))
        self._tower = ClipVisionTower(vision)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def media(self) -> MediaTraits:
        return self.media_of_grid(self._tower.grid, self._tower.class_tokens)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        patches = self._tower.grid.features(image).rows
        return MediaFeatures(np.pad(patches, ((1, 0), (0, 0))), 1)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = weights.within("vision_model.")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, ops.select_rows(x, inputs.media.tokens))
        return linear(weights, "visual_projection", x, (self.width,))
