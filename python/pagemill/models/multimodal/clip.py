"""CLIP: a tower for images and one for texts, whose vectors are compared. A prompt is a text, whose
last token is embedded, or an image, for which one token stands that no text has: the one behind the
vocabulary.

Weights: `text_model.` (the decoder below), `text_projection`; `vision_model.` (clip_vision.py) with
`post_layernorm`, `visual_projection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
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
from pagemill.models.config_keys import Defaults, activation, inner_config, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
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


class ClipTextTower(Decoder):
    """The decoder. Tokens behind the vocabulary, which stand for images, read any row."""

    names = DecoderNames(
        embedding="text_model.embeddings.token_embedding",
        layers="text_model.encoder.layers",
        norm="text_model.final_layer_norm",
        attention_norm="layer_norm1",
        feed_forward_norm="layer_norm2",
        positions="text_model.embeddings.position_embedding",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(Defaults(config, _TEXT_DEFAULTS), eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "quick_gelu")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        words = weights.matrix(f"{self.names.embedding}.weight", table)
        x = ops.embedding(inputs.token_ids, words, outside=0)
        name, count = "text_model.embeddings.position_embedding", self.sizes.max_positions
        return embedding.add_positions(weights, name, x, inputs.positions, count)


class ClipModel:
    """One CLIP model. An image has one embedding, made of its class token, whose row of features is
    0 and comes first."""

    ignored: Mapping[str, str] = {
        r"logit_scale": "vectors are compared by their cosine",
        r".*\.position_ids": "positions count up from 0",
    }

    def __init__(self, config: Config) -> None:
        self._text = ClipTextTower(inner_config(config, "text_config"))
        self._tower = ClipVisionTower(
            Defaults(inner_config(config, "vision_config"), _VISION_DEFAULTS)
        )
        self._width = positive_int(config, "projection_dim", 512)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        text, grid = self._text.traits, self._tower.grid
        media = MediaTraits(
            rows=grid.rows + 1,
            channels=grid.channels,
            tokens=1,
            width=self._width,
            placeholders={"image": text.vocab_size},
        )
        return replace(
            text,
            vocab_size=text.vocab_size + 1,
            hidden_size=self._width,
            generates=False,
            media=media,
        )

    def features(self, image: PreparedMedia) -> MediaFeatures:
        patches = self._tower.grid.features(image).rows
        return MediaFeatures(np.pad(patches, ((1, 0), (0, 0))), 1)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower = PrefixedWeights(weights, "vision_model.")
        x = self._tower.hidden(tower, inputs.media, inputs.positions, (self._tower.layers,))
        x = self._tower.post_norm(tower, ops.select_rows(x, inputs.media.tokens))
        return linear(weights, "visual_projection", x, (self._width,))

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = self._text.hidden(weights, replace(inputs, media=None))
        return inputs.with_media(linear(weights, "text_projection", x, (self._width,)))

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("CLIP has no language model head")
