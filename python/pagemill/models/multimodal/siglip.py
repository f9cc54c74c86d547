"""SigLIP and SigLIP 2, models of two towers (two_towers.py). The tokens of a text see each other.

Weights: `text_model.` with `head`; `vision_model.` (siglip_vision.py or siglip2_vision.py) with
`post_layernorm` and `head` (attention_pooling.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, flag, inner_config, positive_int
from pagemill.models.multimodal.two_towers import TextTower, TwoTowers
from pagemill.models.vision.attention_pooling import pooled_by_attention
from pagemill.models.vision.siglip2_vision import Siglip2VisionTower
from pagemill.models.vision.siglip_vision import SiglipVisionTower, tower_config
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.trace import Tensor

# Those of the configurations' classes.
_TEXT_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 64,
}


class _TextTower(TextTower):
    both_ways = True


class _SiglipTowers(TwoTowers):
    """What both have in common: a text is padded to the longest one. A subclass has a `media`,
    `features`, and `patches`: the vectors of all patches, [T, hidden], normalized by the tower."""

    projection = "text_model.head"
    projection_bias = True
    ignored = TwoTowers.ignored | {"logit_bias": "vectors are compared by their cosine"}

    def __init__(self, config: Config, layers: VisionLayers) -> None:
        """`layers` are those of the tower for images."""
        text = Defaults(inner_config(config, "text_config"), _TEXT_DEFAULTS)
        tower = _TextTower(text, eps=1e-6, hidden_act="gelu_pytorch_tanh")
        super().__init__(tower, positive_int(text, "projection_size", tower.sizes.hidden_size))
        self._layers = layers
        pools = flag(inner_config(config, "vision_config"), "vision_use_head", True)
        if not pools or layers.hidden_size != self.width:
            raise ModelConfigError(
                f"vision_use_head must be true, and images have {layers.hidden_size} features,"
                f" texts {self.width} (projection_size): they must be as many"
            )

    def patches(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        raise NotImplementedError

    @property
    def traits(self) -> ModelTraits:
        return replace(super().traits, pools_last=True)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = weights.within("vision_model.")
        x = self.patches(tower, inputs)
        head = tower.within("head.")
        return pooled_by_attention(head, self._layers, x, inputs.media.tokens)


class SiglipModel(_SiglipTowers):
    """One SigLIP model, or one of SigLIP 2, whose images have one size."""

    def __init__(self, config: Config) -> None:
        self._tower = SiglipVisionTower(tower_config(config))
        super().__init__(config, self._tower.encoder)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def media(self) -> MediaTraits:
        return self.media_of_grid(self._tower.grid)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return MediaFeatures(self._tower.grid.features(image).rows, 1)

    def patches(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights, inputs.media, inputs.positions, (self._tower.layers,))
        return self._tower.post_norm(weights, x)


class Siglip2Model(_SiglipTowers):
    """One model of SigLIP 2 whose images have any size (NaFlex). Of the embeddings of an image, one
    for each patch, its token has the first: all are alike."""

    def __init__(self, config: Config) -> None:
        vision = inner_config(config, "vision_config")
        self._tower = Siglip2VisionTower(vision, merge=1)
        super().__init__(config, self._tower.encoder)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def media(self) -> MediaTraits:
        media = self._tower.media_traits(width=self.width, placeholders=self.placeholders)
        return replace(media, placed=True)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        rows = self._tower.features(image).rows
        return MediaFeatures(rows, 1, placement=np.zeros(1, np.int32))

    def patches(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._tower.hidden(weights, inputs)
