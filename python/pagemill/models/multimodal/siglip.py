"""SigLIP and SigLIP 2: a tower for images and one for texts, whose vectors are compared. A prompt
is a text, which is padded to the longest one and whose last token is embedded, or an image, for
which one token stands that no text has: the one behind the vocabulary.

Weights: `text_model.` (the decoder below) with `text_model.head`; `vision_model.` (siglip_vision.py
or siglip2_vision.py) with `post_layernorm` and `head` (attention_pooling.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.layers.prefixed import PrefixedWeights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import Defaults, activation, flag, inner_config, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
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


class SiglipTextTower(Decoder):
    """Its layers, in which tokens see each other. Tokens behind the vocabulary, which stand for
    images, read any row."""

    names = DecoderNames(
        embedding="text_model.embeddings.token_embedding",
        layers="text_model.encoder.layers",
        norm="text_model.final_layer_norm",
        attention_norm="layer_norm1",
        feed_forward_norm="layer_norm2",
        positions="text_model.embeddings.position_embedding",
    )
    both_ways = True

    def __init__(self, config: Config) -> None:
        super().__init__(Defaults(config, _TEXT_DEFAULTS), eps=("layer_norm_eps", 1e-6))
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "gelu_pytorch_tanh")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        words = weights.matrix(f"{self.names.embedding}.weight", table)
        x = ops.embedding(inputs.token_ids, words, outside=0)
        name, count = "text_model.embeddings.position_embedding", self.sizes.max_positions
        return embedding.add_positions(weights, name, x, inputs.positions, count)


class _TwoTowers:
    """What both have in common. A subclass has a `media`, `features`, and `patches`: the vectors of
    all patches, [T, hidden], normalized by the tower."""

    ignored: Mapping[str, str] = {
        r"logit_(scale|bias)": "vectors are compared by their cosine",
        r".*\.position_ids": "positions count up from 0",
    }

    def __init__(self, config: Config, layers: VisionLayers) -> None:
        """`layers` are those of the tower for images."""
        text = inner_config(config, "text_config")
        self._text = SiglipTextTower(text)
        self._layers = layers
        self.width = positive_int(text, "projection_size", self._text.sizes.hidden_size)
        pools = flag(inner_config(config, "vision_config"), "vision_use_head", True)
        if not pools or layers.hidden_size != self.width:
            raise ModelConfigError(
                f"vision_use_head must be true, and images have {layers.hidden_size} features,"
                f" texts {self.width} (projection_size): they must be as many"
            )
        self.placeholders: Mapping[MediaKind, int] = {"image": self._text.traits.vocab_size}

    @property
    def media(self) -> MediaTraits:
        raise NotImplementedError

    def features(self, image: PreparedMedia) -> MediaFeatures:
        raise NotImplementedError

    def patches(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        raise NotImplementedError

    @property
    def traits(self) -> ModelTraits:
        text = self._text.traits
        return replace(
            text,
            vocab_size=text.vocab_size + 1,
            hidden_size=self.width,
            pools_last=True,
            media=self.media,
        )

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = PrefixedWeights(weights, "vision_model.")
        x = self.patches(tower, inputs)
        head = PrefixedWeights(tower, "head.")
        return pooled_by_attention(head, self._layers, x, inputs.media.tokens)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = self._text.hidden(weights, replace(inputs, media=None))
        return inputs.with_media(linear(weights, "text_model.head", x, (self.width,), bias=True))

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("SigLIP has no language model head")


class SiglipModel(_TwoTowers):
    """One SigLIP model, or one of SigLIP 2, whose images have one size."""

    def __init__(self, config: Config) -> None:
        self._tower = SiglipVisionTower(tower_config(config))
        super().__init__(config, self._tower.encoder)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def media(self) -> MediaTraits:
        grid = self._tower.grid
        return MediaTraits(
            rows=grid.rows,
            channels=grid.channels,
            tokens=1,
            width=self.width,
            placeholders=self.placeholders,
        )

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return MediaFeatures(self._tower.grid.features(image).rows, 1)

    def patches(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights, inputs.media, inputs.positions, (self._tower.layers,))
        return self._tower.post_norm(weights, x)


class Siglip2Model(_TwoTowers):
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
